"""Tests that concat_and_chunk serves the rows of OLMo-core's NumpyFSLDataset."""

import pickle

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import sources
from support.token_files import write_megatron

FILES = st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=4)


def write_files(folder, files):
    """Write raw arrays, which OLMo-core names .npy, and return the paths."""
    paths = [folder / f"part-{i}.npy" for i in range(len(files))]
    for path, tokens in zip(paths, files, strict=True):
        np.array(tokens, np.uint16).tofile(path)
    return paths


@given(FILES, st.integers(1, 7), st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_rows_are_cut_from_the_concatenation(
    tmp_path_factory, files, length, units, per_file
):
    folder = tmp_path_factory.mktemp("drawn")
    documents = sources.TokenArrayDataSource(
        write_files(folder, files), np.uint16, eos_id=0
    )
    rows = documents.concat_and_chunk(
        length, max_sequence_length=units * length, per_file=per_file
    )
    pieces = files if per_file else [[token for file in files for token in file]]
    expected = [
        piece[begin + row * length :][:length]
        for piece in pieces
        for begin in range(0, len(piece) - units * length + 1, units * length)
        for row in range(units)
    ]
    assert [row.tolist() for row in rows] == expected
    assert len(rows) == len(expected)
    assert all(row.dtype == np.uint16 and row.flags.writeable for row in rows)


@pytest.fixture
def documents(tmp_path):
    prefix = str(tmp_path / "train")
    write_megatron(prefix, [[1, 2, 3], [], [4], [5, 6, 7, 8]], np.uint16)
    return sources.MegatronDataSource(prefix)


def test_rows_of_documents_without_ends(documents):
    rows = documents.concat_and_chunk(3)
    assert [row.tolist() for row in rows] == [[1, 2, 3], [4, 5, 6]]
    assert rows.__getitems__([1, 0, 1])[2].tolist() == [4, 5, 6]
    assert rows.__getitems__([]) == []
    assert rows.source is documents


def test_pickled_rows_equal_the_original(documents):
    rows = pickle.loads(pickle.dumps(documents.concat_and_chunk(2)))
    assert rows[3].tolist() == [7, 8]
    assert repr(rows) == repr(documents.concat_and_chunk(2))
    assert repr(rows) != repr(documents.concat_and_chunk(4))


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_and_dataset_serve_rows(documents, workers):
    rows = documents.concat_and_chunk(2)
    loader = gristmill.DataLoader(
        data_source=rows,
        sampler=gristmill.SequentialSampler(len(rows)),
        operations=[gristmill.Batch(2)],
        worker_count=workers,
        streams=1,
    )
    batches = [batch.tolist() for batch in loader]
    assert batches == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    dataset = gristmill.MapDataset.source(rows).batch(2)
    assert [batch.tolist() for batch in dataset] == batches


def test_remote_rows_equal_local_ones():
    with fsspec.open("memory://rows/far.npy", "wb") as far:
        far.write(np.arange(1, 8, dtype=np.uint16).tobytes())
    documents = sources.TokenArrayDataSource(
        "memory://rows/far.npy", np.uint16, eos_id=4
    )
    rows = documents.concat_and_chunk(3)
    assert [row.tolist() for row in rows] == [[1, 2, 3], [4, 5, 6]]


def test_bad_arguments_are_refused(documents):
    with pytest.raises(TypeError, match=r"sequence_length must be an int, got float"):
        documents.concat_and_chunk(2.5)
    with pytest.raises(ValueError, match=r"sequence_length must be >= 1 and .*, got 0"):
        documents.concat_and_chunk(0)
    with pytest.raises(ValueError, match="multiple of sequence_length, got 5 and 2"):
        documents.concat_and_chunk(2, max_sequence_length=5)
    with pytest.raises(TypeError, match="such as a MegatronDataSource, got list"):
        sources.ConcatAndChunkDataSource([], 2)
    with pytest.raises(ValueError, match=r"should be in \[0, num_records\), got 4 for"):
        documents.concat_and_chunk(2)[4]
    with pytest.raises(ValueError, match="got -1"):
        documents.concat_and_chunk(2)[-1]
