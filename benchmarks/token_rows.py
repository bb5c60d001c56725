"""Data sets of Megatron with many documents, and megatron.core's index of samples.

The lengths of documents are drawn from a log-normal distribution, with a mean of 605
tokens.  The tokens are zeros that take no space on the disk.
"""

import hashlib
import os
import pathlib
import struct
import warnings
from typing import Any

import numpy as np

from record_files import FOLDER

SEQUENCE_LENGTH = 2048
SEED = 1234
DRAWN = 10_000_000  # Lengths that are drawn at once.


def lengths_of(documents: int) -> np.ndarray:
    """Returns the lengths of the documents, int32."""
    random = np.random.default_rng(0)
    lengths = np.empty(documents, np.int32)
    for begin in range(0, documents, DRAWN):
        part = lengths[begin : begin + DRAWN]
        part[:] = np.minimum(random.lognormal(5.8, 1.1, len(part)), 1e6)
    return lengths + np.int32(1)


def prefix_of(documents: int) -> str:
    """Returns the prefix of a data set, which is written if it is missing."""
    folder = FOLDER / f"megatron-{documents}"
    if not folder.exists():
        unfinished = pathlib.Path(f"{folder}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        _write(unfinished / "train", lengths_of(documents))
        os.replace(unfinished, folder)
    return str(folder / "train")


def load_index(prefix: str) -> None:
    """Reads the .idx file of a data set once, so that it is in the page cache."""
    with open(f"{prefix}.idx", "rb") as file:
        while file.read(1 << 24):
            pass


def _write(prefix: pathlib.Path, lengths: np.ndarray) -> None:
    offsets = np.zeros(len(lengths), np.int64)
    np.cumsum(2 * lengths[:-1].astype(np.int64), out=offsets[1:])
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0")
        file.write(struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
        lengths.tofile(file)
        offsets.tofile(file)
        np.arange(len(lengths) + 1).tofile(file)
        os.fsync(file)  # Otherwise the disk is busy while the first run is measured.
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(int(offsets[-1]) + 2 * int(lengths[-1]))


def import_megatron() -> Any:
    """Returns megatron.core's module of GPTDataset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import megatron.core.datasets.gpt_dataset as module
    return module


def digest(*arrays: Any) -> str:
    """Returns a hash of arrays."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(np.ascontiguousarray(array))
    return hashed.hexdigest()
