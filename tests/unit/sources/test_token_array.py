"""Tests of reading the documents of token arrays by number."""

import os
import pickle

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import errors, sources

EOS, BOS = 3, 4


def expected_documents(tokens, eos, bos):
    """Split an array after each eos that ends a document."""
    is_end = tokens == eos
    if bos is not None:
        is_end[:-1] &= tokens[1:] == bos
        # At the end of the file no token has to follow.
    ends = np.flatnonzero(is_end) + 1
    return [part.tolist() for part in np.split(tokens, ends) if part.size]


@given(
    st.lists(st.integers(0, 5), max_size=40),
    st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]),
    st.sampled_from([None, BOS]),
)
@settings(max_examples=200, deadline=None)
def test_documents_end_at_eos(tmp_path_factory, values, dtype, bos):
    folder = tmp_path_factory.getbasetemp() / "drawn"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    tokens = np.array(values, dtype)
    tokens.tofile(folder / "part.npy")
    source = sources.TokenArrayDataSource(folder / "part.npy", dtype, EOS, bos_id=bos)
    found = list(source)
    assert [document.tolist() for document in found] == expected_documents(
        tokens, EOS, bos
    )
    assert all(document.dtype == dtype for document in found)
    assert sum(source.sizes(range(len(source)))) == tokens.nbytes


def test_documents_cross_the_windows_of_the_scan(tmp_path):
    tokens = np.ones(400_000, np.uint16)
    ends = [0, 131_070, 131_071, 131_072, 262_143, 399_000]
    tokens[ends] = EOS
    tokens.tofile(tmp_path / "part.npy")
    source = sources.TokenArrayDataSource(tmp_path / "part.npy", np.uint16, EOS)
    assert [document.size for document in source] == [
        *np.diff([-1, *ends]),
        400_000 - 399_001,
    ]


@pytest.mark.parametrize("far", [False, True])
def test_header_of_numpy_save_is_skipped(tmp_path, monkeypatch, far):
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "part.npy"
    np.save(path, np.array([7, EOS, 8], np.uint16))
    if far:
        with fsspec.open("memory://part.npy", "wb") as file:
            file.write(path.read_bytes())
        path = "memory://part.npy"
    source = sources.TokenArrayDataSource(path, np.uint16, EOS)
    assert [document.tolist() for document in source] == [[7, EOS], [8]]


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.zeros(3, np.int32), r"part\.npy: .*array of uint16 .*got int32"),
        (np.zeros(3, ">u2"), "got >u2"),
        (np.zeros((3, 1), np.uint16), r"with 1 axis, got uint16 of shape \(3, 1\)"),
        (np.array([None]), "pickled"),
    ],
)
def test_header_of_another_array_is_an_error(tmp_path, array, match):
    np.save(tmp_path / "part.npy", array)
    with pytest.raises(errors.CorruptRecord, match=match):
        sources.TokenArrayDataSource(tmp_path / "part.npy", np.uint16, EOS)


def test_file_shorter_than_its_header_is_an_error(tmp_path):
    path = tmp_path / "part.npy"
    np.save(path, np.zeros(3, np.uint16))
    os.truncate(path, path.stat().st_size - 2)
    with pytest.raises(errors.CorruptRecord, match="134 bytes by its header, got 132"):
        sources.TokenArrayDataSource(path, np.uint16, EOS)


def test_index_depends_on_the_rule(tmp_path):
    path = tmp_path / "part.npy"
    np.array([1, EOS, BOS, EOS, 2], np.uint16).tofile(path)
    assert len(sources.TokenArrayDataSource(path, np.uint16, EOS)) == 3
    assert len(sources.TokenArrayDataSource(path, np.uint16, EOS, bos_id=BOS)) == 2
    assert len(sources.TokenArrayDataSource(path, np.uint16, BOS)) == 2
    assert len(sources.TokenArrayDataSource(path, np.uint8, EOS)) == 3


def test_documents_are_read_only_and_source_pickles(tmp_path):
    path = tmp_path / "part.npy"
    np.array([1, 2, EOS, 5, EOS], np.uint32).tofile(path)
    source = pickle.loads(
        pickle.dumps(sources.TokenArrayDataSource(path, np.uint32, EOS))
    )
    assert source.dtype == np.uint32
    assert source[1].tolist() == [5, EOS]
    assert not source[1].flags.writeable


def test_file_that_shrank_is_an_error(tmp_path):
    path = tmp_path / "part.npy"
    np.array([1, EOS, 5, EOS], np.uint16).tofile(path)
    source = sources.TokenArrayDataSource(path, np.uint16, EOS)
    os.truncate(path, 6)
    with pytest.raises(
        errors.CorruptRecord, match=r"part\.npy: document 1 at offset 4"
    ):
        source[1]


def test_size_must_be_a_multiple_of_a_token(tmp_path):
    path = tmp_path / "part.npy"
    path.write_bytes(b"123")
    with pytest.raises(errors.CorruptRecord, match=r"3 bytes.*multiple of 2"):
        sources.TokenArrayDataSource(path, np.uint16, EOS)


@pytest.mark.parametrize(
    ("dtype", "eos", "bos", "error", "match"),
    [
        (np.int32, 0, None, ValueError, "uint8, uint16.*got int32"),
        (np.float32, 0, None, ValueError, "got float32"),
        (">u2", 0, None, ValueError, "got >u2"),
        (np.uint16, 65_536, None, ValueError, "eos_id.*65535.*got 65536"),
        (np.uint16, -1, None, ValueError, "eos_id.*got -1"),
        (np.uint16, 0, 70_000, ValueError, "bos_id.*got 70000"),
        (np.uint16, 1.5, None, TypeError, "eos_id must be an int, got float"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, dtype, eos, bos, error, match):
    np.zeros(2, np.uint16).tofile(tmp_path / "part.npy")
    with pytest.raises(error, match=match):
        sources.TokenArrayDataSource(tmp_path / "part.npy", dtype, eos, bos_id=bos)
