"""Tests that data sets of Megatron read as megatron.core reads them."""

import os
import pathlib
import pickle
import struct

import fsspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import errors, sources
from support import extras
from support.cli import run
from support.tokenizers import documents, encode, write_lines, write_tokenizer

megatron = extras.megatron("datasets.indexed_dataset")

DTYPES = [
    np.uint8,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.float64,
    np.float32,
    np.uint16,
]


def write(prefix, documents, dtype=np.uint16, modes=None):
    """Write documents, which are lists of sequences, with megatron.core."""
    builder = megatron.IndexedDatasetBuilder(
        f"{prefix}.bin", dtype=dtype, multimodal=modes is not None
    )
    modes = iter(modes or [])
    for document in documents:
        for sequence in document:
            builder.add_item(torch.tensor(sequence), next(modes, 0))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")
    return str(prefix)


DOCUMENTS = st.lists(st.lists(st.lists(st.integers(0, 100), max_size=6), max_size=3))


@given(DOCUMENTS, st.sampled_from(DTYPES))
@settings(max_examples=60, deadline=None)
def test_sequences_match_megatron(tmp_path_factory, documents, dtype):
    prefix = write(tmp_path_factory.mktemp("drawn") / "train", documents, dtype)
    source = sources.MegatronDataSource(prefix)
    sequences = [sequence for document in documents for sequence in document]
    assert [found.tolist() for found in source] == sequences
    if sum(map(len, sequences)):  # Megatron cannot map an empty file.
        theirs = megatron.IndexedDataset(prefix)
        assert len(source) == len(theirs)
        for i in range(len(theirs)):
            expected = theirs[i]
            assert source[i].dtype == expected.dtype == dtype
            assert source[i].tolist() == expected.tolist()
        sizes = source.sizes(range(len(source))) // source.dtype.itemsize
        assert sizes.tolist() == theirs.sequence_lengths.tolist()
    whole = sources.MegatronDataSource(prefix, unit="document")
    assert [found.tolist() for found in whole] == [
        [token for sequence in document for token in sequence] for document in documents
    ]


@pytest.fixture
def prefix(tmp_path):
    return write(tmp_path / "train", [[[1, 2, 3], [4]], [], [[5, 6]]])


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_records_are_read_in_any_order(prefix, access):
    source = sources.MegatronDataSource(prefix, access=access)
    found = pickle.loads(pickle.dumps(source)).__getitems__([2, 0, 1, 0])
    assert [sequence.tolist() for sequence in found] == [
        [5, 6],
        [1, 2, 3],
        [4],
        [1, 2, 3],
    ]
    assert not found[0].flags.writeable


def test_several_data_sets_follow_each_other(prefix, tmp_path):
    other = write(tmp_path / "other", [[[7]]])
    source = sources.MegatronDataSource([prefix, pathlib.Path(other)])
    assert source[3].tolist() == [7]
    signed = write(tmp_path / "signed", [[[7]]], np.int32)
    with pytest.raises(
        ValueError, match=r"same dtype, got uint16 for .*int32 for .*sig"
    ):
        sources.MegatronDataSource([prefix, signed])


def test_modes_match_megatron(tmp_path):
    prefix = write(tmp_path / "train", [[[1], [2, 3]]], modes=[0, 1])
    source = sources.MegatronDataSource(prefix)
    assert source.modes().tolist() == [0, 1]
    theirs = megatron.IndexedDataset(prefix, multimodal=True)
    assert [theirs[i][1] for i in range(2)] == [0, 1]


def test_modes_of_documents_are_those_of_sequences(tmp_path):
    prefix = write(tmp_path / "train", [[[1], [2, 3]]], modes=[0, 1])
    source = pickle.loads(
        pickle.dumps(sources.MegatronDataSource(prefix, unit="document"))
    )
    assert (len(source), source.modes().tolist()) == (1, [0, 1])


def test_only_some_modes_are_an_error(prefix, tmp_path):
    other = write(tmp_path / "other", [[[7]]], modes=[1])
    with pytest.raises(ValueError, match=r"modes in .*other and none in .*train"):
        sources.MegatronDataSource([prefix, other])


def test_no_modes_is_none(prefix):
    assert sources.MegatronDataSource(prefix).modes() is None


def test_remote_data_set_equals_the_local_one(prefix):
    for suffix in (".bin", ".idx"):
        with fsspec.open(f"memory://far{suffix}", "wb") as far:
            far.write(pathlib.Path(prefix + suffix).read_bytes())
    found = list(sources.MegatronDataSource("memory://far"))
    assert [sequence.tolist() for sequence in found] == [[1, 2, 3], [4], [5, 6]]


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_reads_sequences(prefix, workers):
    loader = gristmill.DataLoader(
        data_source=sources.MegatronDataSource(prefix),
        sampler=gristmill.SequentialSampler(3),
        worker_count=workers,
    )
    assert [found.tolist() for found in loader] == [[1, 2, 3], [4], [5, 6]]


@pytest.mark.parametrize(
    ("offset", "data", "match"),
    [
        (0, b"X", 'offset 0: expected "MMIDIDX"'),
        (9, b"\2", "offset 9: version 2, expected 1"),
        (17, b"\x09", "offset 17: dtype code 9, expected 1 to 8"),
        (18, struct.pack("<Q", 2**63), "9223372036854775808 sequences"),
        (26, struct.pack("<Q", 2**63), "9223372036854775808 boundaries"),
        (26, struct.pack("<Q", 0), "0 boundaries"),
    ],
)
def test_damaged_index_names_the_offset(prefix, offset, data, match):
    path = pathlib.Path(f"{prefix}.idx")
    damaged = bytearray(path.read_bytes())
    damaged[offset : offset + len(data)] = data
    path.write_bytes(damaged)
    with pytest.raises(errors.CorruptRecord, match=match) as raised:
        sources.MegatronDataSource(prefix)
    assert str(path) in str(raised.value)


def test_each_truncation_of_the_index_is_an_error(prefix):
    path = pathlib.Path(f"{prefix}.idx")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(errors.CorruptRecord, match="expected"):
            sources.MegatronDataSource(prefix)


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_truncated_tokens_name_the_record(prefix, access):
    os.truncate(f"{prefix}.bin", 9)
    source = sources.MegatronDataSource(prefix, access=access)
    assert source[1].tolist() == [4]
    with pytest.raises(
        errors.CorruptRecord, match=r"train\.bin: sequence 2 at offset 8"
    ):
        source[2]


@given(st.integers(34, 34 + 12 * 3 + 8 * 4 - 1), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_damaged_places_never_read_outside_of_the_file(tmp_path_factory, offset, value):
    prefix = tmp_path_factory.getbasetemp() / "damaged"
    write(prefix, [[[1, 2, 3], [4]], [], [[5, 6]]])
    path = pathlib.Path(f"{prefix}.idx")
    damaged = bytearray(path.read_bytes())
    damaged[offset] = value
    path.write_bytes(damaged)
    for unit in ("sequence", "document"):
        for access in ("pread", "mmap"):
            source = sources.MegatronDataSource(prefix, unit=unit, access=access)
            for key in range(3):
                try:
                    assert source[key].size <= 6
                except errors.CorruptRecord as error:
                    assert f"{unit} {key}" in str(error)


def test_bad_arguments_are_refused(prefix, tmp_path):
    with pytest.raises(
        ValueError, match="unit must be 'sequence' or 'document', got 't"
    ):
        sources.MegatronDataSource(prefix, unit="token")
    with pytest.raises(ValueError, match="prefixes must have at least one"):
        sources.MegatronDataSource([])
    with pytest.raises(ValueError, match="access must be 'pread' or 'mmap', got 'map'"):
        sources.MegatronDataSource(prefix, access="map")
    with pytest.raises(TypeError, match="prefixes must have only paths, got int"):
        sources.MegatronDataSource([5])
    with pytest.raises(FileNotFoundError, match=r"none\.idx"):
        sources.MegatronDataSource(tmp_path / "none")
    os.remove(f"{prefix}.bin")
    with pytest.raises(FileNotFoundError, match=r"train\.bin"):
        sources.MegatronDataSource(prefix)


def test_megatron_reads_files_of_tokenize_command(tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    texts = documents(20)
    path = write_lines(tmp_path / "in.jsonl", texts)
    arguments = ("--tokenizer", tokenizer, "--processes", 1)
    assert run("tokenize", path, tmp_path / "x", *arguments).status == 0
    theirs = megatron.IndexedDataset(str(tmp_path / "x"))
    assert [ids.tolist() for ids in theirs] == encode(tokenizer, texts)
    assert theirs.document_indices.tolist() == list(range(21))
    assert theirs.index.dtype is np.uint16
