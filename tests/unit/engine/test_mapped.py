"""Arrays that view a mapped file travel to workers by the file's name."""

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
    """What arrives, by way of a pickle that must not hold the rows."""
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


@pytest.mark.claim("NumPy arrays and dicts of arrays")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("offset", [0, 128, mmap.ALLOCATIONGRANULARITY + 4])
def test_the_same_bytes_of_the_file_are_mapped(path, view, offset):
    rows = (path.stat().st_size - offset) // 32
    mapped = VIEWS[view](np.memmap(path, np.int32, "r", offset, (rows, 8))[:ROWS])
    arrived = sent(mapped)
    assert type(arrived) is np.ndarray
    assert arrived.dtype == mapped.dtype
    assert arrived.strides == mapped.strides
    assert not arrived.flags.writeable
    np.testing.assert_array_equal(arrived, mapped)


def test_changes_of_what_arrives_do_not_reach_the_file(path):
    arrived = sent(np.load(path, mmap_mode="r+"))
    arrived[0] = -1
    assert np.load(path)[0].tolist() == list(range(8))


def test_changes_to_the_file_reach_what_arrived(path):
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
def test_all_others_are_pickled_as_ever(path, other):
    assert reduce_mapped(OTHERS[other](path)) is None


def test_a_file_without_a_name_any_more_is_sent_as_bytes(path):
    mapped = np.load(path, mmap_mode="r")
    path.unlink()
    assert reduce_mapped(mapped) is None


def test_another_file_under_the_name_is_refused(path):
    reduced = reduce_mapped(np.load(path, mmap_mode="r"))
    other = path.with_suffix(".new.npy")
    np.save(other, np.zeros((ROWS, 8), np.int32))
    os.replace(other, path)
    with pytest.raises(ValueError, match=r"table\.npy was replaced or resized"):
        open_mapped(*reduced[1])


class Windows:
    """A source of a user's own, that keeps the map to itself."""

    def __init__(self, path):
        self._tokens = np.memmap(path, np.int32, "r", 128)

    def __len__(self):
        return len(self._tokens) - 8

    def __getitem__(self, index):
        return np.array(self._tokens[index : index + 8])


@pytest.mark.claim("NumPy arrays and dicts of arrays")
@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "source", [lambda path: np.load(path, mmap_mode="r"), Windows], ids=["table", "own"]
)
def test_workers_give_what_the_caller_would_give(path, source):
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


def test_a_table_of_mapped_files_gives_plain_rows(path):
    source = g.sources.TableSource({"x": np.load(path, mmap_mode="r")})
    assert type(source[1]["x"]) is np.ndarray
    assert cloudpickle.loads(cloudpickle.dumps(source))[1]["x"].tolist() == [
        *range(8, 16)
    ]
