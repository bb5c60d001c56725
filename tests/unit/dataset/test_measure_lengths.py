"""measure_lengths measures once, and detects lengths of other data."""

import json

import numpy as np
import pytest

import gristmill as g

LENGTHS = [3, 0, 7, 1] * 300


def arrays(lengths=LENGTHS):
    return g.MapDataset.source([np.ones(n) for n in lengths])


@pytest.mark.multiprocess
@pytest.mark.parametrize("num_workers", [0, 2])
def test_lengths_are_those_of_elements_in_order(tmp_path, num_workers):
    path = tmp_path / "lengths.npy"
    ds = arrays().map(lambda x: {"text": np.append(x, 0), "id": 1})
    found = ds.measure_lengths(path, feature="text", num_workers=num_workers)
    assert found.tolist() == [n + 1 for n in LENGTHS]
    assert isinstance(found, np.memmap)
    assert not found.flags.writeable
    assert np.load(path).tolist() == found.tolist()
    assert [*tmp_path.iterdir()] == [path]
    row = ds.pack({"text": 8}, found)[0]
    assert row["text_segment_ids"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]


def test_existing_file_is_not_measured_again(tmp_path):
    path = tmp_path / "lengths.npy"
    calls = []

    def count(x):
        calls.append(len(x))
        return x

    ds = arrays().map(count)
    first = ds.measure_lengths(path)
    calls.clear()
    assert ds.measure_lengths(path).tolist() == first.tolist()
    assert len(calls) == 16


def test_lengths_of_other_data_raise(tmp_path):
    path = tmp_path / "lengths.npy"
    arrays().measure_lengths(path)
    for other in (arrays()[1:], arrays().map(np.copy)):
        with pytest.raises(ValueError, match="lengths of other data: expected"):
            other.measure_lengths(path)
    with pytest.raises(ValueError, match="element 1199 has 2 tokens, and 1 in"):
        arrays([*LENGTHS[:-1], 2]).measure_lengths(path)


def test_files_of_a_source_are_part_of_the_identity(tmp_path):
    path = tmp_path / "lengths.npy"
    for name in "ab":
        np.array([5, 0, 6, 0], np.uint16).tofile(tmp_path / name)

    def tokens(name):
        source = g.sources.TokenArrayDataSource(tmp_path / name, np.uint16, eos_id=0)
        return g.MapDataset.source(source)

    assert tokens("a").measure_lengths(path).tolist() == [2, 2]
    assert tokens("a").measure_lengths(path).tolist() == [2, 2]
    with pytest.raises(ValueError, match="lengths of other data"):
        tokens("b").measure_lengths(path)


@pytest.mark.parametrize("size", [0, 5, 140, 4000])
def test_damaged_file_raises(tmp_path, size):
    path = tmp_path / "lengths.npy"
    arrays().measure_lengths(path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="must be a file that measure_lengths wrote"):
        arrays().measure_lengths(path)


def test_foreign_array_raises(tmp_path):
    path = tmp_path / "lengths.npy"
    np.save(path, np.ones(4, np.int32))
    with pytest.raises(ValueError, match="must be a file that measure_lengths wrote"):
        arrays().measure_lengths(path)
    np.save(path, np.ones(4))
    with path.open("ab") as file:
        file.write(json.dumps({}).encode())
    with pytest.raises(ValueError, match="float64"):
        arrays().measure_lengths(path)


def test_failure_leaves_no_file(tmp_path):
    ds = arrays().map(lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ds.measure_lengths(tmp_path / "lengths.npy")
    assert not [*tmp_path.iterdir()]


def test_wrong_elements_and_arguments_raise(tmp_path):
    path = tmp_path / "lengths.npy"
    dicts = arrays().map(lambda x: {"text": x})
    with pytest.raises(TypeError, match=r"got dict\. Pass feature='field'"):
        dicts.measure_lengths(path)
    with pytest.raises(TypeError, match=r"in the field 'label', got \['text'\]"):
        dicts.measure_lengths(path, feature="label")
    with pytest.raises(ValueError, match="has no elements"):
        arrays([]).measure_lengths(path)
    with pytest.raises(ValueError, match="filter"):
        arrays().filter(len).measure_lengths(path)
    with pytest.raises(TypeError, match="num_workers"):
        arrays().measure_lengths(path, num_workers=1.5)
    with pytest.raises(ValueError, match="num_workers must be at least 0, got -1"):
        arrays().measure_lengths(path, num_workers=-1)
