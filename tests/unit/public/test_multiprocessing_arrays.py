"""Tests of SharedMemoryArray, Grain's class made safe for views and empty arrays."""

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest

from faults.scripts import command, environment
from gristmill.multiprocessing import SharedMemoryArray, SharedMemoryArrayMetadata

grain = pytest.importorskip("grain")


@pytest.fixture
def array():
    made = SharedMemoryArray((2, 3), np.int32)
    made[:] = np.arange(6).reshape(2, 3)
    made.unlink_on_del()
    return made


def test_metadata_fields_match_grain():
    theirs = grain.multiprocessing.SharedMemoryArrayMetadata
    names = [f.name for f in dataclasses.fields(SharedMemoryArrayMetadata)]
    assert names == [f.name for f in dataclasses.fields(theirs)]


def test_grain_opens_our_arrays(array):
    theirs = grain.multiprocessing.SharedMemoryArray.from_metadata(array.metadata)
    assert theirs.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_pickles_by_name(array):
    again = pickle.loads(pickle.dumps(array))
    again[0, 0] = 9
    assert array[0, 0] == 9
    assert type(again) is SharedMemoryArray


def test_views_pickle_by_value(array):
    again = pickle.loads(pickle.dumps(array[:, 1:]))
    assert again.tolist() == [[1, 2], [4, 5]]
    assert type(again) is np.ndarray


def test_views_keep_the_memory(array):
    view = array[1:]
    del array
    assert view.tolist() == [[3, 4, 5]]


def test_views_have_no_metadata(array):
    with pytest.raises(ValueError, match="needs a whole SharedMemoryArray"):
        array[1:].metadata  # noqa: B018


def test_results_of_computations_are_plain_arrays(array):
    assert type(array + 1) is np.ndarray
    assert type(array.sum()) is np.int64
    assert type(array[0, 0]) is np.int32


@pytest.mark.claim(
    "SharedMemoryArray does not accept an int as a shape, and stores "
    "references if the dtype is object"
)
def test_empty_arrays_and_plain_lengths():
    for shape in [(0, 3), 4, (), (2,)]:
        made = SharedMemoryArray(shape, np.float32)
        made.unlink_on_del()
        assert made.shape == np.empty(shape).shape


@pytest.mark.claim(
    "SharedMemoryArray does not accept an int as a shape, and stores "
    "references if the dtype is object"
)
def test_objects_are_refused():
    with pytest.raises(ValueError, match=r"dtype must not .*got object"):
        SharedMemoryArray((2,), object)


def test_block_is_removed_with_its_owner():
    array = SharedMemoryArray((2, 3), np.int32)
    array.unlink_on_del()
    metadata = array.metadata
    del array
    with pytest.raises(FileNotFoundError):
        SharedMemoryArray.from_metadata(metadata)


def test_unlinking_twice_is_not_an_error(monkeypatch):
    errors = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    array = SharedMemoryArray((2, 3), np.int32)
    array.unlink_on_del()
    metadata = array.metadata
    metadata.close_and_unlink_shm()
    del array
    assert errors == []
    with pytest.raises(FileNotFoundError):
        SharedMemoryArray.from_metadata(metadata)


def test_blocks_may_be_closed_by_threads():
    SharedMemoryArray.enable_async_del(num_threads=2, max_outstanding_requests=1)
    pool = SharedMemoryArray._del_thread_pool
    try:
        made = [SharedMemoryArray((4,)) for _ in range(20)]
        metadata = [one.metadata for one in made]
        for one in made:
            one.unlink_on_del()
        del one, made
    finally:
        SharedMemoryArray._disable_async_del()
        pool.close()
        pool.join()
    for one in metadata:
        with pytest.raises(FileNotFoundError):
            SharedMemoryArray.from_metadata(one)


def test_other_process_shares_the_memory(array):
    done = subprocess.run(
        command("multiprocessing_arrays/another_process"),
        env=environment(),
        input=pickle.dumps(array),
        capture_output=True,
        check=True,
    )
    assert done.stdout.strip() == b"87"
    assert array[1, 2] == 77


def test_shape_may_be_a_numpy_int():
    array = SharedMemoryArray(np.int64(3))
    array.unlink_on_del()
    assert array.shape == (3,)


@pytest.mark.parametrize("shape", [-1, (2, -1)])
def test_negative_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="shape must have extents of at least 0, got"):
        SharedMemoryArray(shape)
