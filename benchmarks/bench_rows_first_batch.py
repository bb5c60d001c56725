"""Measures the first batch of Megatron's samples without a saved index.

Prints seconds from opening the files to 8 samples of 2,048 tokens, in a process that
has imported its library; lower is better.  100 M documents (--records), or 10 M with
--quick; the .idx file, of 2 GB, is in the page cache.  Both save their index.
"megatron" is megatron.core's GPTDataset as its builder creates it.

    python benchmarks/bench_rows_first_batch.py
"""

import pathlib
import shutil
import tempfile
import time
from typing import Any

import numpy as np

import token_rows
from harness import AtLeast, AtMost, Measurement, Question, Settings, main

DOCUMENTS = 100_000_000
QUICK_DOCUMENTS = 10_000_000
SAMPLES = 8


def _open_prefix(settings: Settings) -> str:
    """Returns the prefix of the data set, whose .idx file was read once."""
    default = QUICK_DOCUMENTS if settings.quick else DOCUMENTS
    prefix = token_rows.prefix_of(settings.records or default)
    token_rows.load_index(prefix)
    return prefix


def _answers(samples: list[Any], count: int) -> dict[str, str]:
    tokens = [np.asarray(sample["tokens"]) for sample in samples]
    return {"tokens": token_rows.digest(*tokens), "samples": str(count)}


def _gristmill(settings: Settings) -> Measurement:
    from gristmill import sources

    prefix = _open_prefix(settings)
    folder = tempfile.mkdtemp(dir=pathlib.Path(prefix).parent)
    try:
        begin = time.perf_counter()
        samples = sources.GPTDataSource(
            sources.MegatronDataSource(prefix),
            token_rows.SEQUENCE_LENGTH,
            seed=token_rows.SEED,
            index_dir=folder,
        )
        first = samples.__getitems__(range(SAMPLES))
        seconds = time.perf_counter() - begin
    finally:
        shutil.rmtree(folder)
    return Measurement(seconds, _answers(first, len(samples)))


class Tokenizer:
    """The tokenizer's attributes that megatron.core reads."""

    vocab_size = 50_000
    eod = 1
    pad = -1

    def __init__(self) -> None:
        self.unique_identifiers = {"name": "none"}


def _megatron(settings: Settings) -> Measurement:
    module = token_rows.import_megatron()
    from megatron.core.datasets import blended_megatron_dataset_builder as builder

    prefix = _open_prefix(settings)
    folder = tempfile.mkdtemp(dir=pathlib.Path(prefix).parent)
    try:
        begin = time.perf_counter()
        config = module.GPTDatasetConfig(
            random_seed=token_rows.SEED,
            sequence_length=token_rows.SEQUENCE_LENGTH,
            blend=([prefix], None),
            split="1",
            path_to_cache=folder,
            tokenizer=Tokenizer(),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        samples, _, _ = builder.BlendedMegatronDatasetBuilder(
            module.GPTDataset, [None] * 3, lambda: True, config
        ).build()
        first = [samples[i] for i in range(SAMPLES)]
        seconds = time.perf_counter() - begin
    finally:
        shutil.rmtree(folder)
    return Measurement(seconds, _answers(first, len(samples)))


QUESTION = Question(
    name="rows_first_batch",
    text="8 of Megatron's samples without a saved index, 100 M documents",
    unit="s",
    contestants={"gristmill": _gristmill, "megatron": _megatron},
    targets=(AtMost(1), AtLeast(3, ("megatron",))),
)

if __name__ == "__main__":
    main(QUESTION)
