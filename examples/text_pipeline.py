"""Feed a language model with packed text, and measure how long it waits for data.

    python examples/text_pipeline.py [--library grain] [--workers 2 16]

The text is the standard library's source code. It is written as JSON to an ArrayRecord
file and tokenized by a byte-pair encoding trained on it. One host of 16 shuffles the
documents of many epochs, takes its share, packs them into rows of 128 tokens and makes
batches of 512 rows, first in this process and then with worker processes. For each
setting the script prints the time to the first batch, the rows and tokens per second,
and the share of time that a loop with training steps of one second spends waiting.

The same code runs with Gristmill and with Grain.

    pip install 'gristmill[convert]' tokenizers
"""

import argparse
import dataclasses
import importlib
import json
import pathlib
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

LENGTH = 128  # Tokens per row.
PACKING_BINS = 30  # Rows that are filled at the same time.
HOST, HOSTS = 1, 16
EPOCHS = 100
SEED = 42
VOCABULARY = 4096
PREFETCHED_BATCHES = 3  # Batches that a thread keeps ready for the training loop.


@dataclasses.dataclass(frozen=True)
class Text:
    """Paths of the documents and of the tokenizer."""

    records: str
    tokenizer: str


# The data: one record is a JSON object with a title and a description.


def documents(count: int) -> Iterator[dict[str, str]]:
    """Yields up to `count` documents: paragraphs of the standard library's sources."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    yielded = 0
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, paragraph in enumerate(text.split("\n\n")):
            if yielded == count:
                return
            if paragraph.strip():
                yield {"title": f"{path.name}:{number}", "description": paragraph}
                yielded += 1


def write_records(path: pathlib.Path, texts: Iterable[dict[str, str]]) -> str:
    """Writes documents to an ArrayRecord file and returns its path."""
    # Imported here, because worker processes import this file but write nothing.
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for document in texts:
        writer.write(json.dumps(document).encode())
    writer.close()
    return str(path)


def train_tokenizer(
    path: pathlib.Path, texts: Iterable[dict[str, str]], vocabulary: int
) -> str:
    """Trains a byte-pair encoding on descriptions; returns the path of its file."""
    tokenizer = Tokenizer(BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary, special_tokens=["[PAD]", "[UNK]"], show_progress=False
    )
    tokenizer.train_from_iterator(
        (document["description"] for document in texts), trainer
    )
    tokenizer.save(str(path))
    return str(path)


def write_text(folder: pathlib.Path, count: int, vocabulary: int = VOCABULARY) -> Text:
    """Writes the documents and trains a tokenizer on them."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = list(documents(count))
    return Text(
        write_records(folder / "train.array_record", texts),
        train_tokenizer(folder / "tokenizer.json", texts, vocabulary),
    )


# The pipeline.


class Tokenize:
    """Converts a document to its token ids, int64[n]; pickles as a path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tokenizer = Tokenizer.from_file(path)

    def __call__(self, document: dict[str, str]) -> dict[str, np.ndarray]:
        ids = self._tokenizer.encode(document["description"]).ids
        return {"text": np.asarray(ids, np.int64)}

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenize, (self._path,)


def trim(element: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"text": element["text"][:LENGTH]}


def pipeline(grain: Any, text: Text, batch_size: int, workers: int) -> Any:
    """Returns a dataset of tokens, positions and segments, [batch_size, 128]."""
    dataset = (
        grain.MapDataset.source(grain.sources.ArrayRecordDataSource(text.records))
        .map(json.loads)
        .map(Tokenize(text.tokenizer))
        .shuffle(seed=SEED)
        .repeat(num_epochs=EPOCHS)
    )
    dataset = dataset[HOST::HOSTS].map(trim)
    dataset = grain.experimental.FirstFitPackIterDataset(
        dataset.to_iter_dataset(grain.ReadOptions(num_threads=0)),
        length_struct={"text": LENGTH},
        num_packing_bins=PACKING_BINS,
    )
    dataset = dataset.batch(batch_size, drop_remainder=True)
    if workers:
        options = grain.multiprocessing.MultiprocessingOptions(num_workers=workers)
        dataset = dataset.mp_prefetch(options)
    return dataset


# Measurements.


@dataclasses.dataclass(frozen=True)
class Figures:
    """The speed of batches: seconds to the first, and rows and tokens per second."""

    first_batch_s: float
    rows_per_s: float
    tokens_per_s: float


def measure(dataset: Any, batches: int) -> Figures:
    """Times the first batch and the `batches` after it."""
    start = time.perf_counter()
    iterator = iter(dataset)
    next(iterator)
    first_batch_s = time.perf_counter() - start
    rows = tokens = 0
    start = time.perf_counter()
    for _ in range(batches):
        batch = next(iterator)
        rows += len(batch["text"])
        tokens += np.count_nonzero(batch["text_segment_ids"])
    seconds = time.perf_counter() - start
    iterator.close()
    return Figures(first_batch_s, rows / seconds, int(tokens) / seconds)


def waiting_share(iterator: Any, steps: int, step_s: float, restore_s: float) -> float:
    """Returns the share of time that a training loop waits for data, 0 to 1.

    The model is restored first; this time does not count as waiting.
    """
    start = time.perf_counter()
    time.sleep(restore_s)
    for _ in range(steps):
        next(iterator)
        time.sleep(step_s)
    seconds = time.perf_counter() - start
    return (seconds - steps * step_s - restore_s) / seconds


def waiting_shares(
    grain: Any, dataset: Any, steps: int, step_s: float
) -> dict[str, float]:
    """Returns the share of waiting for three ways to iterate over the dataset."""

    def prefetched() -> Any:
        return iter(
            grain.experimental.ThreadPrefetchIterDataset(
                dataset, prefetch_buffer_size=PREFETCHED_BATCHES
            )
        )

    shares = {}
    for name, make in {
        "as it is": lambda: iter(dataset),
        "a thread prefetches": prefetched,
        "and starts while the model is restored": prefetched,
    }.items():
        iterator = make()
        restore_s = 0.0
        if name.startswith("and starts"):
            iterator.start_prefetch()
            restore_s = 5 * step_s
        shares[name] = waiting_share(iterator, steps, step_s, restore_s)
        iterator.close()
    return shares


def import_library(name: str) -> Any:
    if name == "grain":
        from absl import flags

        flags.FLAGS.mark_as_parsed()  # Its options are flags of absl.
    return importlib.import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--library", choices=("gristmill", "grain"), default="gristmill"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 16])
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--batches", type=int, default=20, help="timed after the first")
    parser.add_argument("--steps", type=int, default=10, help="of the training loop")
    parser.add_argument("--step-seconds", type=float, default=1.0)
    parser.add_argument("--data", type=pathlib.Path, help="keep the data here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        text = write_text(options.data or pathlib.Path(temporary), options.documents)
        grain = import_library(options.library)
        source = grain.sources.ArrayRecordDataSource(text.records)
        print(f"{len(source)} documents through {options.library}")
        for workers in (0, *options.workers):
            dataset = pipeline(grain, text, options.batch_size, workers)
            figures = measure(dataset, options.batches)
            print(
                f"{workers:2d} workers: first batch {figures.first_batch_s:.2f} s,"
                f" {figures.rows_per_s:,.0f} rows/s,"
                f" {figures.tokens_per_s:,.0f} tokens/s"
            )
            shares = waiting_shares(grain, dataset, options.steps, options.step_seconds)
            for name, share in shares.items():
                print(f"    waits {share:6.1%} of the time: {name}")


if __name__ == "__main__":
    main()
