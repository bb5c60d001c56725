"""Measures rows of 2048 tokens of text from a node of a Ray cluster.

Prints us per row in wall time; lower is better.  JSON in ArrayRecord, in the file's
order; a byte-pair encoding of 16,384 tokens; documents laid end to end and cut into
rows; batches of 8 rows; four streams, on a node of one CPU.  "this machine" is the
same chain with one process and no cluster.  Ray Data reads the same records and encodes
them; its batches are laid end to end here, in the order in which they come.

    python benchmarks/bench_ray_text.py
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ray_question
import text_question
from bench_text_pack import BATCH_SIZE, EPOCHS, LENGTH, VOCABULARY, Encode
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch


def _gristmill(text: Any, **options: Any) -> Iterator[np.ndarray]:
    import gristmill

    encode = Encode(text.tokenizer)
    documents = gristmill.MapDataset.source(
        gristmill.sources.ArrayRecordDataSource(text.records)
    )
    encoded = documents.map(json.loads).repeat(EPOCHS).map(encode.one)
    rows = gristmill.experimental.ConcatThenSplitIterDataset(
        encoded.to_iter_dataset(), length_struct={"text": LENGTH}
    )
    process = gristmill.MultiprocessingOptions(num_workers=1)
    for batch in rows.batch(BATCH_SIZE).mp_prefetch(process, streams=4, **options):
        yield batch["text"]


def _on_actors(text: Any) -> Iterator[np.ndarray]:
    from gristmill.ray import RayWorkers

    return _gristmill(text, workers=RayWorkers(1))


def _ray_data(text: Any) -> Iterator[np.ndarray]:
    import ray

    import gristmill

    ray.data.DataContext.get_current().enable_progress_bars = False
    path, tokenizer = text.records, text.tokenizer
    size = len(gristmill.sources.ArrayRecordDataSource(path))

    # Files and tokenizers that a process has opened.
    opened: list[Any] = []

    def encode_block(rows: dict[str, Any]) -> dict[str, Any]:
        if not opened:
            opened.append(gristmill.sources.ArrayRecordDataSource(path))
            opened.append(Encode(tokenizer))
        source, encode = opened
        documents = map(json.loads, source.__getitems__(rows["id"] % size))
        ids = [encode.one(document)["text"] for document in documents]
        return {"ids": [np.concatenate(ids)]}

    data = ray.data.range(EPOCHS * size).map_batches(encode_block, batch_size=64)
    unread = np.empty(0, np.int32)
    for block in data.iter_batches(batch_size=1, prefetch_batches=64):
        unread = np.concatenate([unread, block["ids"][0]])
        while len(unread) >= BATCH_SIZE * LENGTH:
            tokens, unread = np.split(unread, [BATCH_SIZE * LENGTH])
            yield tokens.reshape(BATCH_SIZE, LENGTH)


def _measure(
    load: Callable[[Any], Iterator[np.ndarray]], on_cluster: bool, settings: Settings
) -> Measurement:
    text = text_question.text(VOCABULARY)
    with ray_question.cluster(nodes=1) if on_cluster else contextlib.nullcontext():
        batches = load(text)
        first = np.asarray(next(batches))
        seconds = seconds_per_batch(batches, 10 * settings.seconds, warm=32)
        batches.close()
    answers = {"rows": f"{first.dtype} {first.shape}"}
    return Measurement(seconds / BATCH_SIZE * 1e6, answers)


QUESTION = Question(
    name="ray_text",
    text="JSON, 16k byte-pair encoding, rows of 2048 tokens by a node of a Ray cluster",
    unit="us/row",
    contestants={
        "gristmill": functools.partial(_measure, _on_actors, True),
        "this machine": functools.partial(_measure, _gristmill, False),
        "Ray Data": functools.partial(_measure, _ray_data, True),
    },
    # The actor never waits, and shares two cores with Ray; README.md has the profile.
    targets=(AtLeast(0.85, ("this machine",)), AtLeast(1, ("Ray Data",))),
)

if __name__ == "__main__":
    main(QUESTION)
