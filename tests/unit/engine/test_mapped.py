"""Views of memory-mapped files are sent to workers by file name."""

import mmap
import os
import pickle

import cloudpickle
import numpy as np
import pytest

import gristmill as g
from gristmill._engine.packing import open_mapped, reduce_mapped

ROWS = 3000


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, np.arange(ROWS * 8, dtype=np.int32).reshape(ROWS, 8))
    return path


def sent(array):
    """Return an array after a pickle round trip that must not contain the rows."""
    reduced = reduce_mapped(array)
    assert reduced is not None
    data = pickle.dumps(reduced)
    assert len(data) < 600
    function, arguments = pickle.loads(data)
    return function(*arguments)


VIEWS = {
    "all": lambda a: a,
    "as an array": np.asarray,
    "rows from the middle": lambda a: a[1234:2345],
    "every third row": lambda a: a[5::3],
    "one column": lambda a: a[:, 3],
    "transposed": lambda a: a.T,
    "other dtype": lambda a: a.view(np.uint8),
    "one row": lambda a: a[2800],
    "repeated": lambda a: np.broadcast_to(a[7], (5, 8)),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("offset", [0, 128, mmap.ALLOCATIONGRANULARITY + 4])
def test_sent_view_maps_the_same_bytes(path, view, offset):
    rows = (path.stat().st_size - offset) // 32
    mapped = VIEWS[view](np.memmap(path, np.int32, "r", offset, (rows, 8))[:ROWS])
    arrived = sent(mapped)
    assert type(arrived) is np.ndarray
    assert arrived.dtype == mapped.dtype
    assert arrived.strides == mapped.strides
    assert not arrived.flags.writeable
    np.testing.assert_array_equal(arrived, mapped)


def test_changes_to_sent_array_do_not_reach_the_file(path):
    arrived = sent(np.load(path, mmap_mode="r+"))
    arrived[0] = -1
    assert np.load(path)[0].tolist() == list(range(8))


def test_changes_to_the_file_reach_sent_array(path):
    mapped = np.load(path, mmap_mode="r+")
    arrived = sent(mapped)
    mapped[5] = -5
    assert arrived[5].tolist() == [-5] * 8


OTHERS = {
    "in memory": lambda path: np.load(path),
    "changed privately": lambda path: np.load(path, mmap_mode="c"),
    "computed": lambda path: np.load(path, mmap_mode="r") + 1,
    "backwards": lambda path: np.load(path, mmap_mode="r")[::-1],
    "empty": lambda path: np.load(path, mmap_mode="r")[:0],
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_arrays_are_pickled_normally(path, other):
    assert reduce_mapped(OTHERS[other](path)) is None


def test_unlinked_file_is_sent_as_bytes(path):
    mapped = np.load(path, mmap_mode="r")
    path.unlink()
    assert reduce_mapped(mapped) is None


def test_replaced_file_is_rejected(path):
    reduced = reduce_mapped(np.load(path, mmap_mode="r"))
    other = path.with_suffix(".new.npy")
    np.save(other, np.zeros((ROWS, 8), np.int32))
    os.replace(other, path)
    with pytest.raises(ValueError, match=r"table\.npy was replaced or resized"):
        open_mapped(*reduced[1])


class Windows:
    """A user's source that keeps its memory map private."""

    def __init__(self, path):
        self._tokens = np.memmap(path, np.int32, "r", 128)

    def __len__(self):
        return len(self._tokens) - 8

    def __getitem__(self, index):
        return np.array(self._tokens[index : index + 8])


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "source", [lambda path: np.load(path, mmap_mode="r"), Windows], ids=["table", "own"]
)
def test_workers_match_the_caller(path, source):
    def batches(workers):
        made = source(path)
        return g.DataLoader(
            data_source=made,
            sampler=g.IndexSampler(len(made), shuffle=True, num_epochs=1, seed=1),
            operations=[g.Batch(64)],
            worker_count=workers,
            streams=1,
        )

    for mine, expected in zip(batches(1), batches(0), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_table_of_mapped_files_returns_plain_rows(path):
    source = g.sources.TableSource({"x": np.load(path, mmap_mode="r")})
    assert type(source[1]["x"]) is np.ndarray
    assert cloudpickle.loads(cloudpickle.dumps(source))[1]["x"].tolist() == [
        *range(8, 16)
    ]
