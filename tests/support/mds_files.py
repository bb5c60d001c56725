"""Data sets that mosaicml-streaming writes, and what it reads from them."""

import pathlib
import warnings

import numpy as np
import PIL.Image

from support import extras

mosaicml = extras.mosaicml()

COLUMNS = {"id": "int", "text": "str", "x": "ndarray:uint16"}
SAMPLES = [
    {"id": i, "text": "é" * i, "x": np.arange(i + 1, dtype=np.uint16)}
    for i in range(10)
]


def write(folder, columns, samples, **options):
    """Write samples, which are dicts, and return the folder as a str."""
    with mosaicml.MDSWriter(out=str(folder), columns=columns, **options) as writer:
        for sample in samples:
            writer.write(sample)
    return str(folder)


def write_samples(folder, **options):
    """Write SAMPLES to several small shards, and return the folder as a str."""
    return write(folder, COLUMNS, SAMPLES, size_limit=300, **options)


def shard(folder, number=0, end="mds"):
    """Return the path of a shard."""
    return pathlib.Path(folder, f"shard.{number:05d}.{end}")


def open_data_set(folder):
    """Return the data set of mosaicml-streaming, which does not close index.json."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        return mosaicml.LocalDataset(str(folder))


def read(folder):
    """Return the samples that mosaicml-streaming reads."""
    data_set = open_data_set(folder)
    return [data_set[i] for i in range(len(data_set))]


def unpack(folder):
    """Decompress the shards of a folder next to the compressed ones."""
    stream = mosaicml.Stream(local=str(folder), keep_zip=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for shard in open_data_set(folder).shards:
            stream.prepare_shard(shard)


def assert_equal(found, expected):
    """Check that two decoded values have the same type and content."""
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert list(found) == list(expected)
        for name in found:
            assert_equal(found[name], expected[name])
    elif isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(found, (np.ndarray, np.generic)):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    elif isinstance(found, PIL.Image.Image):
        assert (found.mode, found.size) == (expected.mode, expected.size)
        assert found.tobytes() == expected.tobytes()
    else:
        assert repr(found) == repr(expected)
