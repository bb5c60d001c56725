"""Compare the padding and the speed of the ways of packing.

Packs the standard library's sources into rows of 512 tokens. A top-level definition is
a sequence and a word is a token. Compares no packing, first fit and best fit with more
and more open rows, and concatenation. Prints a table with bars; with --output it also
draws a chart, by matplotlib.

    python examples/packing_efficiency.py [--output packing_efficiency.png]
"""

import argparse
import importlib.util
import pathlib
import re
import sysconfig
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import gristmill as grain

LENGTH = 512
BINS = (8, 32, 128, 512)


class Result(NamedTuple):
    """The result of one way of packing.

    Attributes:
        name: Its name.
        used: The share of cells with a token.
        sequences_per_s: The speed.
    """

    name: str
    used: float
    sequences_per_s: float


def texts() -> Iterator[str]:
    """Yield the standard library, cut before each top-level definition."""
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        yield from re.split(r"^(?=(?:async )?def |class |@)", text, flags=re.MULTILINE)


def sequences() -> list[np.ndarray]:
    """Return token arrays, int32, shape (n,), 0 < n <= LENGTH; longer texts are cut."""
    number_of: dict[str, int] = {}
    parts: list[np.ndarray] = []
    for text in texts():
        words = re.findall(r"\w+|[^\w\s]", text)
        tokens = [number_of.setdefault(word, len(number_of) + 1) for word in words]
        array = np.array(tokens, np.int32)
        parts += np.split(array, range(LENGTH, len(array), LENGTH))
    return [part for part in parts if len(part)]


def measure(name: str, packed: grain.IterDataset, count: int) -> Result:
    """Run a packing dataset of `count` sequences to its end."""
    start = time.perf_counter()
    rows = list(packed)
    seconds = time.perf_counter() - start
    used = sum(int(np.count_nonzero(row["tokens_segment_ids"])) for row in rows)
    return Result(name, used / (len(rows) * LENGTH), count / seconds)


def measure_all(tokens: list[np.ndarray]) -> Iterator[Result]:
    """Yield the result of each way of packing for the same sequences."""
    ds = grain.MapDataset.source(tokens).shuffle(seed=1)
    elements = ds.map(lambda x: {"tokens": x}).to_iter_dataset()
    lengths = {"tokens": LENGTH}
    unpacked = grain.experimental.FirstFitPackIterDataset(
        elements, length_struct=lengths, num_packing_bins=32, max_sequences_per_bin=1
    )
    yield measure("one sequence a row", unpacked, len(tokens))
    for name, packing in (
        ("first fit", grain.experimental.FirstFitPackIterDataset),
        ("best fit", grain.experimental.BestFitPackIterDataset),
    ):
        for bins in BINS:
            packed = packing(elements, length_struct=lengths, num_packing_bins=bins)
            yield measure(f"{name}, {bins} rows", packed, len(tokens))
    split = grain.experimental.ConcatThenSplitIterDataset(
        elements, length_struct=lengths
    )
    yield measure("concat then split", split, len(tokens))


def draw(results: list[Result], output: pathlib.Path) -> None:
    """Draw a chart of both figures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = [result.name for result in results]
    figure, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(10, 4))
    left.barh(names, [100 * result.used for result in results])
    left.set_xlabel("cells that hold a token, %")
    left.invert_yaxis()
    right.barh(names, [result.sequences_per_s / 1e6 for result in results])
    right.set_xlabel("million sequences per second")
    figure.suptitle(f"Packing Python's standard library into rows of {LENGTH} tokens")
    figure.tight_layout()
    figure.savefig(output)
    print(f"drew {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, help="an image file to draw")
    options = parser.parse_args()

    tokens = sequences()
    mean = np.mean([len(part) for part in tokens])
    print(f"{len(tokens)} sequences, {mean:.0f} tokens on average; rows of {LENGTH}\n")
    results = list(measure_all(tokens))
    for name, used, speed in results:
        bar = "#" * round(40 * used)
        print(f"{name:20} {used:6.1%} {bar:40} {speed / 1e6:5.2f} M sequences/s")

    used_by = {result.name: result.used for result in results}
    assert used_by["one sequence a row"] < used_by["first fit, 8 rows"]
    for kind in ("first fit", "best fit"):
        assert used_by[f"{kind}, {BINS[0]} rows"] < used_by[f"{kind}, {BINS[-1]} rows"]
    assert used_by["concat then split"] > 0.999
    if options.output is not None:
        if importlib.util.find_spec("matplotlib") is None:
            raise SystemExit("A chart needs matplotlib: pip install matplotlib")
        draw(results, options.output)


if __name__ == "__main__":
    main()
