"""Measures encoding of a document as token ids, with 2 workers on 2 cores.

Prints us per document in wall time; lower is better.  A byte-pair encoding of 16,384
tokens; the documents are in memory.  "tokenizers" and "gigatoken" are Tokenize with a
tokenizer of that library, with batches of 64 documents, concatenated; "bare" are calls
of encode_batch_fast and encode_batch with 64 documents in one process, in which each
library uses its own threads.

    python benchmarks/bench_tokenize.py
"""

import functools
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import text_question
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch

VOCABULARY = 16_384
WORKERS = 2
BLOCK = 64
CHECKED = 20
EPOCHS = 1000


def _tokenizer_path(made: Any) -> str:
    """Return a tokenizer.json with all bytes, which gigatoken needs."""
    path = pathlib.Path(made.tokenizer).with_name("all-bytes.json")
    if not path.exists():
        tokenizer = Tokenizer(models.BPE())
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = byte_level
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            initial_alphabet=byte_level.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(_texts(made.records), trainer)
        half = path.with_name(f"all-bytes.{os.getpid()}.json")
        tokenizer.save(str(half))
        os.replace(half, path)
    return str(path)


@functools.cache
def _texts(path: str) -> list[str]:
    import gristmill

    source = gristmill.sources.ArrayRecordDataSource(path)
    return [json.loads(record)["description"] for record in source]


def _gristmill(library: str, made: Any) -> Iterator[np.ndarray]:
    import gristmill

    step = gristmill.transforms.Tokenize(_tokenizer_path(made), library=library)
    documents = gristmill.MapDataset.source(_texts(made.records)).repeat(EPOCHS)
    encoded = documents.apply(step).batch(BLOCK, batch_fn=np.concatenate)
    options = gristmill.multiprocessing.MultiprocessingOptions(num_workers=WORKERS)
    yield from encoded.to_iter_dataset().mp_prefetch(options)


def _bare_tokenizers(made: Any) -> Iterator[np.ndarray]:
    tokenizer = Tokenizer.from_file(_tokenizer_path(made))
    for block in _blocks(made):
        encodings = tokenizer.encode_batch_fast(block, add_special_tokens=False)
        yield np.concatenate([np.array(one.ids, np.int32) for one in encodings])


def _bare_gigatoken(made: Any) -> Iterator[np.ndarray]:
    import awkward
    import gigatoken

    tokenizer = gigatoken.Tokenizer(_tokenizer_path(made))
    for block in _blocks(made):
        rows = tokenizer.encode_batch(block)
        yield awkward.to_numpy(awkward.flatten(rows)).astype(np.int32)


def _blocks(made: Any) -> Iterator[list[str]]:
    texts = itertools.cycle(_texts(made.records))
    while True:
        yield list(itertools.islice(texts, BLOCK))


def _measure(load: Any, settings: Settings) -> Measurement:
    batches = load(text_question.text(VOCABULARY))
    first = b"".join(next(batches).tobytes() for _ in range(CHECKED))
    seconds = seconds_per_batch(batches, 4 * settings.seconds)
    answers = {"ids": hashlib.sha256(first).hexdigest()}
    return Measurement(seconds / BLOCK * 1e6, answers)


QUESTION = Question(
    name="tokenize",
    text="16k byte-pair encoding of documents in memory, 2 workers",
    unit="us/document",
    contestants={
        "gristmill, tokenizers": functools.partial(
            _measure, functools.partial(_gristmill, "tokenizers")
        ),
        "gristmill, gigatoken": functools.partial(
            _measure, functools.partial(_gristmill, "gigatoken")
        ),
        "bare tokenizers": functools.partial(_measure, _bare_tokenizers),
        "bare gigatoken": functools.partial(_measure, _bare_gigatoken),
    },
    targets=(
        AtLeast(0.9, ("bare tokenizers",), ours="gristmill, tokenizers"),
        AtLeast(0.9, ("bare gigatoken",), ours="gristmill, gigatoken"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
