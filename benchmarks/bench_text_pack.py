"""Measures a row of 2048 tokens of a language model's loader, with 2 workers.

Prints us per row in wall time; lower is better.  JSON in ArrayRecord, in the file's
order; a byte-pair encoding of 16,384 tokens; documents laid end to end and cut into
rows; batches of 8 rows.  All options are the defaults.  "torchdata" is a
StatefulDataLoader over an IterableDataset that reads the same file by the array_record
package and packs by hand; "our source" reads it by Gristmill's instead. "blocks" read
and encode 64 documents per call, in which the tokenizer may use threads.

    python benchmarks/bench_text_pack.py
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import text_question
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch

VOCABULARY = 16_384
LENGTH = 2048
BATCH_SIZE = 8
WORKERS = 2
BLOCK = 64
CHECKED = 20
EPOCHS = 1000


class Encode:
    """Turns documents into token ids, int32[n]; pickles as a path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tokenizer = Tokenizer.from_file(path)

    def one(self, document: dict[str, str]) -> dict[str, np.ndarray]:
        ids = self._tokenizer.encode(document["description"]).ids
        return {"text": np.array(ids, np.int32)}

    def several(self, documents: list[dict[str, str]]) -> list[dict[str, np.ndarray]]:
        texts = [document["description"] for document in documents]
        encoded = self._tokenizer.encode_batch_fast(texts)
        return [{"text": np.array(one.ids, np.int32)} for one in encoded]

    def __reduce__(self) -> tuple[Any, ...]:
        return Encode, (self._path,)


def _gristmill(in_blocks: bool, text: Any) -> Iterator[np.ndarray]:
    import gristmill

    encode = Encode(text.tokenizer)
    documents = gristmill.MapDataset.source(
        gristmill.sources.ArrayRecordDataSource(text.records)
    )
    documents = documents.map(json.loads).repeat(EPOCHS)
    if in_blocks:
        encoded = documents.block_map(encode.several, BLOCK)
    else:
        encoded = documents.map(encode.one)
    rows = gristmill.experimental.ConcatThenSplitIterDataset(
        encoded.to_iter_dataset(), length_struct={"text": LENGTH}
    )
    options = gristmill.multiprocessing.MultiprocessingOptions(num_workers=WORKERS)
    for batch in rows.batch(BATCH_SIZE).mp_prefetch(options):
        yield batch["text"]


def _package_source() -> Any:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    return ArrayRecordDataSource


def _our_source() -> Any:
    from gristmill.sources import ArrayRecordDataSource

    return ArrayRecordDataSource


def _torchdata(
    source_class: Callable[[], Any], in_blocks: bool, text: Any
) -> Iterator[np.ndarray]:
    from torch.utils.data import IterableDataset, get_worker_info
    from torchdata.stateful_dataloader import StatefulDataLoader

    encode = Encode(text.tokenizer)

    class Rows(IterableDataset):
        """Documents of one worker, concatenated and cut into rows."""

        def encoded(self) -> Iterator[list[int]]:
            source = source_class()(text.records)
            worker = get_worker_info()
            numbers = range(worker.id, EPOCHS * len(source), worker.num_workers)
            tokenizer = encode._tokenizer
            if not in_blocks:
                for number in numbers:
                    document = json.loads(source[number % len(source)])
                    yield tokenizer.encode(document["description"]).ids
            for first in range(0, len(numbers), BLOCK):
                block = numbers[first : first + BLOCK]
                keys = [number % len(source) for number in block]
                records = source.__getitems__(keys)
                texts = [json.loads(record)["description"] for record in records]
                for encoding in tokenizer.encode_batch_fast(texts):
                    yield encoding.ids

        def __iter__(self) -> Iterator[np.ndarray]:
            buffer: list[int] = []
            for ids in self.encoded():
                buffer.extend(ids)
                while len(buffer) >= LENGTH:
                    yield np.array(buffer[:LENGTH], np.int32)
                    buffer = buffer[LENGTH:]

    loader = StatefulDataLoader(Rows(), batch_size=BATCH_SIZE, num_workers=WORKERS)
    for batch in loader:
        yield batch.numpy()


_torchdata_package_source = functools.partial(_torchdata, _package_source)
_torchdata_our_source = functools.partial(_torchdata, _our_source)


def _measure(
    load: Callable[[bool, Any], Iterator[np.ndarray]],
    in_blocks: bool,
    settings: Settings,
) -> Measurement:
    text = text_question.text(VOCABULARY)
    batches = load(in_blocks, text)
    first = b"".join(next(batches).tobytes() for _ in range(CHECKED))
    seconds = seconds_per_batch(batches, 4 * settings.seconds)
    answers = {"rows": hashlib.sha256(first).hexdigest()}
    return Measurement(seconds / BATCH_SIZE * 1e6, answers)


QUESTION = Question(
    name="text_pack",
    text="JSON, 16k byte-pair encoding, rows of 2048 tokens, batch 8, 2 workers",
    unit="us/row",
    contestants={
        "gristmill": functools.partial(_measure, _gristmill, False),
        "gristmill, blocks": functools.partial(_measure, _gristmill, True),
        "torchdata": functools.partial(_measure, _torchdata_package_source, False),
        "torchdata, blocks": functools.partial(
            _measure, _torchdata_package_source, True
        ),
        "torchdata, our source": functools.partial(
            _measure, _torchdata_our_source, False
        ),
        "torchdata, our source, blocks": functools.partial(
            _measure, _torchdata_our_source, True
        ),
    },
    targets=(
        AtLeast(1.15, ("torchdata",)),
        AtLeast(1.4, ("torchdata",), ours="gristmill, blocks"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
