"""How fast does a Ray cluster of three nodes make rows of 2048 tokens of text?

Prints us per row in wall time; lower is better.  JSON in ArrayRecord, in the file's
order; a byte-pair encoding of 16,384 tokens; documents laid end to end and cut into
rows; batches of 8 rows.  "this machine" is the same chain with as many processes as the
cluster has CPUs, and no cluster.  Ray Data reads the same records and encodes them; its
batches are laid end to end here, in the order in which they come.

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


def _gristmill(made: Any, **options: Any) -> Iterator[np.ndarray]:
    import gristmill

    encode = Encode(made.tokenizer)
    documents = gristmill.MapDataset.source(
        gristmill.sources.ArrayRecordDataSource(made.records)
    )
    encoded = documents.map(json.loads).repeat(EPOCHS).map(encode.one)
    rows = gristmill.experimental.ConcatThenSplitIterDataset(
        encoded.to_iter_dataset(), length_struct={"text": LENGTH}
    )
    processes = gristmill.MultiprocessingOptions(num_workers=ray_question.STREAMS)
    for batch in rows.batch(BATCH_SIZE).mp_prefetch(processes, **options):
        yield batch["text"]


def _on_actors(made: Any) -> Iterator[np.ndarray]:
    from gristmill.ray import RayWorkers

    return _gristmill(made, workers=RayWorkers(ray_question.ACTORS))


def _ray_data(made: Any) -> Iterator[np.ndarray]:
    import ray

    import gristmill

    ray.data.DataContext.get_current().enable_progress_bars = False
    path, tokenizer = made.records, made.tokenizer
    size = len(gristmill.sources.ArrayRecordDataSource(path))

    class Encoded:
        def __init__(self) -> None:
            self.source = gristmill.sources.ArrayRecordDataSource(path)
            self.encode = Encode(tokenizer)

        def __call__(self, given: dict[str, Any]) -> dict[str, Any]:
            documents = map(json.loads, self.source.__getitems__(given["id"] % size))
            ids = [self.encode.one(document)["text"] for document in documents]
            return {"ids": [np.concatenate(ids)]}

    data = ray.data.range(EPOCHS * size).map_batches(
        Encoded, batch_size=64, concurrency=ray_question.ACTORS
    )
    rest = np.empty(0, np.int32)
    for given in data.iter_rows(prefetch_batches=4):
        rest = np.concatenate([rest, given["ids"]])
        while len(rest) >= BATCH_SIZE * LENGTH:
            taken, rest = np.split(rest, [BATCH_SIZE * LENGTH])
            yield taken.reshape(BATCH_SIZE, LENGTH)


def _measure(
    load: Callable[[Any], Iterator[np.ndarray]], there: bool, settings: Settings
) -> Measurement:
    made = text_question.text(VOCABULARY)
    with ray_question.cluster() if there else contextlib.nullcontext():
        batches = load(made)
        first = np.asarray(next(batches))
        seconds = seconds_per_batch(batches, 10 * settings.seconds, warm=32)
        batches.close()
    answers = {"rows": f"{first.dtype} {first.shape}"}
    return Measurement(seconds / BATCH_SIZE * 1e6, answers)


QUESTION = Question(
    name="ray_text",
    text="JSON, 16k byte-pair encoding, rows of 2048 tokens from a Ray cluster, 2 CPUs",
    unit="us/row",
    contestants={
        "gristmill": functools.partial(_measure, _on_actors, True),
        "this machine": functools.partial(_measure, _gristmill, False),
        "Ray Data": functools.partial(_measure, _ray_data, True),
    },
    targets=(AtLeast(0.95, ("this machine",)), AtLeast(1, ("Ray Data",))),
)

if __name__ == "__main__":
    main(QUESTION)
