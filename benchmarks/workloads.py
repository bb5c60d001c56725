"""The data sets and record shapes of all benchmarks.

Gristmill and its peers read the same objects through the same user functions, so
a difference in time is a difference between loaders.  Nothing here imports a
loader.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

SEED = 20
BATCH = 256
ROWS = 1_000_000
CHECKED_ROWS = 8192
IMAGES = 512
IMAGE_SHAPE = (224, 224, 3)
IMAGE_BATCH = 128
IMAGE_BATCH_BYTES = IMAGE_BATCH * int(np.prod(IMAGE_SHAPE))
PAGE = 4096


@dataclasses.dataclass(frozen=True)
class Workload:
    """The task of a loader: shuffle, map, batch.

    Args:
        source: Records, by ``len(source)`` and ``source[i]``.
        batch_size: Records per batch, ``B``.
        step: User function of one record, or None.
        random_step: User function of a record and a NumPy generator, or None.
        workers: Worker processes; 0 loads in the calling process.
        epochs: Passes over the source; None never ends.
    """

    source: Any
    batch_size: int = BATCH
    step: Callable[[Any], Any] | None = None
    random_step: Callable[[Any, np.random.Generator], Any] | None = None
    workers: int = 0
    epochs: int | None = None

    def once(self, source: Any) -> "Workload":
        """Returns the same work over one epoch of a smaller source."""
        return dataclasses.replace(self, source=source, epochs=1)


class Rows:
    """A user's in-memory source: ``source[i]`` is row ``i``, float32[16]."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.rows[index]


class DictRows(Rows):
    """Rows as dict records: ``{'x': float32[16], 'label': int}``."""

    def __getitem__(self, index: int) -> dict[str, Any]:  # type: ignore[override]
        return {"x": self.rows[index], "label": index % 10}


class Counting:
    """A source of ``size`` integers that stores which records were read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.reads.append(int(index))
        return index


def rows(count: int = ROWS) -> np.ndarray:
    """Returns float32[count, 16]; column 0 is the row's number."""
    table = np.random.default_rng(SEED).random((count, 16), dtype=np.float32)
    table[:, 0] = np.arange(count)
    return table


def images() -> np.ndarray:
    """Returns uint8[512, 224, 224, 3]."""
    shape = (IMAGES, *IMAGE_SHAPE)
    return np.random.default_rng(SEED).integers(0, 256, shape, dtype=np.uint8)


def path_records(count: int) -> list[dict[str, Any]]:
    """Returns ``count`` dicts of an 80-character path, a label and a weight."""
    return [
        {"path": f"/data/{i:074d}", "label": i % 1000 + 1000, "weight": i * 0.5}
        for i in range(count)
    ]


def add_one(record: dict[str, Any]) -> dict[str, Any]:
    """The user's Map: ``x + 1.0``."""
    return {"x": record["x"] + 1.0, "label": record["label"]}


def add_uniform(row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The user's RandomMap: one uniform draw per record."""
    return row + np.float32(rng.uniform())


def one_byte_a_page(batch: Any) -> int:
    """Reads one byte of every page of an image batch, as a consumer would."""
    return int(np.asarray(batch).reshape(-1)[::PAGE].sum())


def leaves(batch: Any) -> list[np.ndarray]:
    """Returns the arrays of a batch as NumPy arrays, dict keys sorted."""
    if isinstance(batch, dict):
        return [leaf for key in sorted(batch) for leaf in leaves(batch[key])]
    return [np.asarray(batch)]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A digest of a loader's output: equal answers mean equal data.

    ``records`` does not depend on the order of the records, ``stream`` does.
    """

    records: str
    stream: str


def answer(batches: Iterable[Any]) -> Answer:
    """Digests every byte, dtype and shape of a finite stream of batches."""
    count = total = stream = 0
    shapes = set()
    for batch in batches:
        arrays = leaves(batch)
        shapes.add(str([(a.dtype.str, a.shape[1:]) for a in arrays]))
        for position in range(len(arrays[0])):
            record = 0
            for array in arrays:
                record = zlib.crc32(array[position].tobytes(), record)
            count += 1
            total = (total + record) % 2**64
            stream = zlib.crc32(record.to_bytes(4, "little"), stream)
    return Answer(f"{count} records {total:x} {sorted(shapes)}", f"{stream:x}")
