"""Measures the command that tokenizes a file of JSON lines, on one core.

Prints ms of CPU time per MB of text, without imports; lower is better.  A byte-pair
encoding of 16,384 tokens, trained on the documents; a document is a module of the
standard library.  Each process encodes in one thread.  "gristmill" is `gristmill
tokenize --format npy --processes 1`; "datatrove" is its DocumentTokenizer without a
shuffle; "megatron loop" is the loop of Megatron's preprocessing tool with the builder
of megatron-core, which does not contain the tool.

    python benchmarks/bench_tokenize_command.py
"""

import functools
import hashlib
import json
import os
import pathlib
import shutil
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from harness import AtLeast, Measurement, Question, Settings, main
from record_files import FOLDER

os.environ["TOKENIZERS_PARALLELISM"] = "false"
VOCABULARY = 16_384
TEXT_BYTES = 12_000_000
EOS = "<|endoftext|>"


class Data(NamedTuple):
    """A folder with a file of JSON lines, the file, and a tokenizer for it."""

    folder: pathlib.Path
    lines: pathlib.Path
    tokenizer: pathlib.Path


def _data() -> Data:
    """Returns the documents, written by the first process that needs them."""
    folder = FOLDER / f"library-{TEXT_BYTES}-{VOCABULARY}"
    if not folder.exists():
        unfinished = pathlib.Path(f"{folder}.{os.getpid()}")
        _write(unfinished)
        try:
            os.replace(unfinished, folder)
        except OSError:  # Another process was faster.
            shutil.rmtree(unfinished)
    lines = folder / "lines" / "library.jsonl"
    return Data(folder, lines, folder / "tokenizer.json")


def _write(folder: pathlib.Path) -> None:
    texts: list[str] = []
    size = 0
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if size >= TEXT_BYTES:
            break
        text = path.read_text(encoding="utf-8", errors="replace")
        if text.strip() and "site-packages" not in path.parts:
            texts.append(text)
            size += len(text.encode())
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    (folder / "lines").mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)]
    (folder / "lines" / "library.jsonl").write_text("\n".join(lines) + "\n")


def _gristmill(library: str, data: Data, out: pathlib.Path) -> pathlib.Path:
    from gristmill._cli import main as run
    from gristmill._convert import token_pieces

    token_pieces._open.cache_clear()  # As the others, open the tokenizer in each run.
    status = run(
        [
            *("tokenize", str(data.lines), str(out / "x"), "--format", "npy"),
            *("--tokenizer", str(data.tokenizer), "--suffix", EOS),
            *("--library", library, "--processes", "1", "--quiet"),
        ]
    )
    assert status == 0
    return out / "x.npy"


def _datatrove(data: Data, out: pathlib.Path) -> pathlib.Path:
    import loguru
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    loguru.logger.remove()
    documents = JsonlReader(str(data.lines.parent)).run()
    step = DocumentTokenizer(
        str(out), str(data.tokenizer), eos_token=EOS, shuffle_documents=False
    )
    step.run(documents)
    return out / "00000_unshuffled.ds"


def _megatron_loop(data: Data, out: pathlib.Path) -> pathlib.Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    tokenizer = Tokenizer.from_file(str(data.tokenizer))
    eos = tokenizer.token_to_id(EOS)
    builder = IndexedDatasetBuilder(str(out / "x.bin"), dtype=np.uint16)
    with open(data.lines, encoding="utf-8") as file:
        for line in file:
            ids = [*tokenizer.encode(json.loads(line)["text"]).ids, eos]
            builder.add_document(ids, [len(ids)])
    builder.finalize(str(out / "x.idx"))
    return out / "x.bin"


def _measure(
    tokenize: Callable[[Data, pathlib.Path], pathlib.Path], settings: Settings
) -> Measurement:
    data = _data()
    seconds: list[float] = []
    stop = time.perf_counter() + 4 * settings.seconds
    # The first run imports packages.
    while len(seconds) < 2 or time.perf_counter() < stop:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            start = time.process_time()
            found = tokenize(data, pathlib.Path(folder))
            seconds.append(time.process_time() - start)
            tokens = found.read_bytes()
    answers = {"ids": hashlib.sha256(tokens).hexdigest()}
    return Measurement(min(seconds[1:]) / TEXT_BYTES * 1e9, answers)


QUESTION = Question(
    name="tokenize_command",
    text="16k byte-pair encoding of JSON lines to a file, one core",
    unit="ms/MB of text",
    contestants={
        "gristmill": functools.partial(
            _measure, functools.partial(_gristmill, "tokenizers")
        ),
        "gristmill, gigatoken": functools.partial(
            _measure, functools.partial(_gristmill, "gigatoken")
        ),
        "datatrove": functools.partial(_measure, _datatrove),
        "megatron loop": functools.partial(_measure, _megatron_loop),
    },
    targets=(
        AtLeast(1.2, ("datatrove", "megatron loop")),
        AtLeast(1.2, ("datatrove", "megatron loop"), ours="gristmill, gigatoken"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
