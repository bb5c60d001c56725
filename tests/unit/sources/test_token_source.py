"""Tests of lengths, parts and views that all sources of token ids have."""

import gc
import multiprocessing
import os
import pathlib
import pickle
import struct

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import errors, sources

EOS = 0
DTYPES = {np.uint16: 8, np.int32: 4, np.int64: 5, np.uint8: 1}


def write_megatron(prefix, documents, dtype=np.uint16, gap=0):
    """Write a data set; a document is a list of sequences; `gap` bytes precede each."""
    sequences = [np.array(s, dtype) for document in documents for s in document]
    ends = np.cumsum([gap + s.nbytes for s in sequences], dtype=np.int64)
    begins = [int(end) - s.nbytes for end, s in zip(ends, sequences, strict=True)]
    boundaries = np.cumsum([0, *map(len, documents)])
    with open(f"{prefix}.bin", "wb") as file:
        for sequence in sequences:
            file.write(b"\xff" * gap + sequence.tobytes())
    count = len(sequences)
    index = b"MMIDIDX\0\0" + struct.pack(
        "<QBQQ", 1, DTYPES[dtype], count, len(boundaries)
    )
    lengths = [len(sequence) for sequence in sequences]
    index += struct.pack(f"<{count}i{count}q", *lengths, *begins)
    index += struct.pack(f"<{len(boundaries)}q", *boundaries)
    pathlib.Path(f"{prefix}.idx").write_bytes(index)
    return str(prefix)


def joined(document):
    return [token for sequence in document for token in sequence]


def open_source(folder, kind, documents, access="pread"):
    """Return a source of documents that are lists of lists of tokens from 1 on."""
    if kind == "array":
        flat = [token for document in documents for token in [*joined(document), EOS]]
        np.array(flat, np.uint16).tofile(folder / "part.npy")
        return sources.TokenArrayDataSource(
            folder / "part.npy", np.uint16, EOS, access=access
        )
    prefix = write_megatron(folder / "train", documents)
    return sources.MegatronDataSource(prefix, unit=kind, access=access)


DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(1, 100), max_size=6), max_size=3), max_size=6
)
KINDS = st.sampled_from(["sequence", "document", "array"])
ACCESS = st.sampled_from(["pread", "mmap"])


@given(DOCUMENTS, KINDS, ACCESS, st.data())
@settings(max_examples=150, deadline=None)
def test_spans_and_lengths_are_those_of_elements(
    tmp_path_factory, documents, kind, access, data
):
    folder = tmp_path_factory.mktemp("drawn")
    source = open_source(folder, kind, documents, access)
    elements = [element.tolist() for element in source]
    assert source.lengths().tolist() == [*map(len, elements)]
    if not elements:
        assert source.read_spans([], [], []) == []
        return
    drawn = data.draw(
        st.lists(
            st.tuples(st.integers(0, len(elements) - 1), st.integers(0, 99)).flatmap(
                lambda pair: st.tuples(
                    st.just(pair[0]),
                    st.integers(0, len(elements[pair[0]])),
                    st.integers(0, len(elements[pair[0]])),
                )
            ),
            max_size=8,
        )
    )
    spans = [(key, min(a, b), max(a, b)) for key, a, b in drawn]
    keys, begins, ends = ([span[i] for span in spans] for i in range(3))
    found = source.read_spans(keys, begins, ends)
    assert [part.tolist() for part in found] == [
        elements[key][begin:end] for key, begin, end in spans
    ]
    assert all(part.dtype == source.dtype for part in found)
    assert not any(part.flags.writeable for part in found)


@pytest.fixture
def prefix(tmp_path):
    return write_megatron(tmp_path / "train", [[[1, 2, 3], [4]], [], [[5, 6]]])


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_spans_of_several_data_sets_are_read_after_close(prefix, tmp_path, access):
    other = write_megatron(tmp_path / "other", [[[7, 8, 9]]])
    source = sources.MegatronDataSource([prefix, other], access=access)
    source.close()
    source = pickle.loads(pickle.dumps(source))
    found = source.read_spans([3, 0, 3, 2, 0], [1, 0, 0, 1, 1], [3, 2, 1, 2, 3])
    assert [part.tolist() for part in found] == [[8, 9], [1, 2], [7], [6], [2, 3]]
    source.close()
    assert source.lengths().tolist() == [3, 1, 2, 3]
    assert found[0].tolist() == [8, 9]


def test_spans_of_far_files_equal_local_ones(prefix):
    for suffix in (".bin", ".idx"):
        with fsspec.open(f"memory://spans{suffix}", "wb") as far:
            far.write(pathlib.Path(prefix + suffix).read_bytes())
    source = sources.MegatronDataSource("memory://spans")
    assert source.lengths().tolist() == [3, 1, 2]
    found = source.read_spans([2, 0, 0], [1, 0, 2], [2, 2, 3])
    assert [part.tolist() for part in found] == [[6], [1, 2], [3]]


def test_span_of_a_long_record_reads_only_its_bytes(tmp_path):
    length = 1 << 22
    prefix = write_megatron(tmp_path / "train", [[np.arange(length)]], np.int32)
    source = sources.MegatronDataSource(prefix)
    before = io_bytes()
    (part,) = source.read_spans([0], [length // 2], [length // 2 + 2048])
    assert io_bytes() - before < 100_000
    assert part[0] == length // 2
    assert part.size == 2048


def io_bytes():
    """Return the number of bytes that this process has read."""
    text = pathlib.Path("/proc/self/io").read_text()
    return int(text.split()[1])


@pytest.mark.parametrize(
    ("span", "error", "match"),
    [
        (([0], [0], [4]), IndexError, r"sequence 0 at offset 0: .*3 items, got 0 to 4"),
        (([2], [2], [1]), IndexError, r"sequence 2 at offset 8: .*2 items, got 2 to 1"),
        (([1], [-1], [1]), IndexError, "sequence 1 .*1 items, got -1 to 1"),
        (([3], [0], [1]), ValueError, "got 3 for the 3 records"),
        (([0, 1], [0], [1]), ValueError, "number of items, got 2, 1 and 1"),
        (([0], [0], [2**64]), IndexError, "sequence 0 .*3 items, got 0 to "),
        (([0], [0.5], [1]), TypeError, "float"),
    ],
)
def test_bad_spans_are_refused(prefix, span, error, match):
    source = sources.MegatronDataSource(prefix)
    with pytest.raises(error, match=match):
        source.read_spans(*span)


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_truncated_file_names_the_record_of_a_span(prefix, access):
    source = sources.MegatronDataSource(prefix, access=access)
    os.truncate(f"{prefix}.bin", 9)
    with pytest.raises(errors.CorruptRecord, match=r"train\.bin.*now, 12 when"):
        source.read_spans([2], [1], [2])
    source = sources.MegatronDataSource(prefix, access=access)
    assert source.lengths().tolist() == [3, 1, 2]
    with pytest.raises(errors.CorruptRecord, match="sequence 2 at offset 8"):
        source.read_spans([0, 2], [1, 1], [2, 2])
    with pytest.raises(errors.CorruptRecord, match="document 2 at offset 8"):
        sources.MegatronDataSource(prefix, unit="document").lengths()


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_lengths_of_a_file_that_grew_are_those_of_its_first_records(tmp_path, access):
    path = tmp_path / "train.npy"
    np.array([1, 0, 2, 3, 0], np.uint16).tofile(path)
    source = sources.TokenArrayDataSource(path, np.uint16, 0, access=access)
    source.close()
    np.array([1, 0, 2, 3, 0, 4, 0], np.uint16).tofile(path)
    assert source.lengths().tolist() == [2, 3]


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_document_of_a_part_of_a_token_is_named(tmp_path, access):
    prefix = write_megatron(tmp_path / "train", [[[1, 2], [3]], [[4]]])
    index = pathlib.Path(f"{prefix}.idx")
    lists = struct.pack("<3i3q", 2, 1, 1, 0, 4, 6)
    assert lists in index.read_bytes()
    damaged = struct.pack("<3i3q", 2, 1, 1, 0, 3, 6)
    index.write_bytes(index.read_bytes().replace(lists, damaged))
    source = sources.MegatronDataSource(prefix, unit="document", access=access)
    assert source[1].tolist() == [4]
    with pytest.raises(errors.CorruptRecord, match="train: record 0 has 5 bytes"):
        source[0]
    with pytest.raises(errors.CorruptRecord, match=r"document 0 .* lists 5 bytes"):
        source.lengths()


def test_lengths_are_a_view_of_the_index(prefix):
    lengths = sources.MegatronDataSource(prefix).lengths()
    assert (lengths.dtype, lengths.flags.writeable) == (np.int32, False)
    with open(f"{prefix}.idx", "r+b") as file:
        file.seek(34)
        file.write(struct.pack("<i", 77))
    assert lengths.tolist() == [77, 1, 2]


def test_lengths_of_single_sequence_documents_are_a_view(tmp_path):
    prefix = write_megatron(tmp_path / "train", [[[1, 2]], [[3]]])
    lengths = sources.MegatronDataSource(prefix, unit="document").lengths()
    assert (lengths.dtype, lengths.tolist()) == (np.int32, [2, 1])


# Views of mapped files


@pytest.mark.parametrize("kind", ["sequence", "document", "array"])
def test_mapped_elements_are_views_that_outlive_the_source(tmp_path, kind):
    documents = [[[1, 2, 3]], [[4]], [[5, 6]]]
    source = open_source(tmp_path, kind, documents, "mmap")
    elements = [source[1], *source.__getitems__([0, 2]), *source]
    parts = source.read_spans([0, 2], [1, 0], [3, 1])
    pickled = pickle.dumps(elements)
    source.close()
    del source
    gc.collect()
    # A write to the file shows that nothing was copied.
    (data,) = (path for path in tmp_path.iterdir() if path.suffix in (".bin", ".npy"))
    content = np.fromfile(data, np.uint16)
    with open(data, "r+b") as file:
        (content * 10).tofile(file)
    assert parts[0].tolist()[:2] == [20, 30]
    assert parts[1].tolist() == [50]
    assert elements[0].tolist()[0] == 40
    assert [element.tolist()[0] for element in elements[1:]] == [10, 50, 10, 40, 50]
    assert [element.tolist()[0] for element in pickle.loads(pickled)][:3] == [4, 1, 5]
    with pytest.raises(ValueError, match="read-only"):
        elements[0][0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        elements[0].flags.writeable = True


def test_unaligned_mapped_tokens_are_read(tmp_path):
    prefix = write_megatron(tmp_path / "train", [[[1, 2]], [[3]]], np.int64, gap=3)
    source = sources.MegatronDataSource(prefix, access="mmap")
    first, second = source
    assert (first.tolist(), second.tolist()) == ([1, 2], [3])
    assert not first.flags.aligned
    assert (first + 1).tolist() == [2, 3]


def test_mapped_elements_survive_a_fork(prefix):
    source = sources.MegatronDataSource(prefix, access="mmap")
    element = source[0]
    fork = multiprocessing.get_context("fork")
    with fork.Pool(1) as pool:
        assert pool.apply(np.ndarray.tolist, (element,)) == [1, 2, 3]
        assert pool.apply(source.read_spans, ([0], [1], [3]))[0].tolist() == [2, 3]


def test_empty_files_do_not_prevent_views(tmp_path):
    empty = write_megatron(tmp_path / "empty", [])
    other = write_megatron(tmp_path / "other", [[[]], [[7, 8]]])
    source = sources.MegatronDataSource([empty, other], access="mmap")
    elements = list(source)
    assert [element.tolist() for element in elements] == [[], [7, 8]]
    assert not elements[1].flags.owndata


def write_many(folder, documents):
    """Write a token array whose lengths are large enough to be saved."""
    lengths = np.random.default_rng(0).integers(1, 5, documents)
    tokens = np.ones(lengths.sum(), np.uint16)
    tokens[np.cumsum(lengths) - 1] = 0
    tokens.tofile(folder / "part.npy")
    return sources.TokenArrayDataSource(folder / "part.npy", np.uint16, 0), lengths


def saved_lengths(folder):
    index = folder / ".part.npy.gristmill-index"
    return [path for path in folder.glob(".part.npy*") if path != index]


def test_lengths_of_many_records_are_in_a_mapped_file(tmp_path):
    source, expected = write_many(tmp_path, 300_000)
    lengths = source.lengths()
    assert (lengths.dtype, lengths.flags.writeable) == (np.int32, False)
    assert np.array_equal(lengths, expected)
    again = pickle.loads(pickle.dumps(source)).lengths()  # Waits for the file.
    (path,) = saved_lengths(tmp_path)
    assert pathlib.Path("/proc/self/maps").read_text().count(str(path)) >= 1
    assert np.array_equal(again, expected)
    inode = path.stat().st_ino
    assert np.array_equal(source.lengths(), expected)
    assert path.stat().st_ino == inode


def test_lengths_of_changed_files_are_found_again(tmp_path):
    write_many(tmp_path, 300_000)[0].lengths()
    changed, other = write_many(tmp_path, 300_001)
    assert np.array_equal(changed.lengths(), other)
    both = sources.TokenArrayDataSource([tmp_path / "part.npy"] * 2, np.uint16, 0)
    assert np.array_equal(both.lengths(), np.concatenate([other, other]))
    ends_at_one = sources.TokenArrayDataSource(tmp_path / "part.npy", np.uint16, 1)
    assert ends_at_one.lengths().sum() == other.sum()


def test_lengths_that_need_64_bits_are_int64(tmp_path):
    prefix = str(tmp_path / "train")
    lengths = [2**31 - 1, 2**31 - 1, 5]
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 1, 3, 3)
    begins = [0, lengths[0], 2 * lengths[0]]
    lists = struct.pack("<3i3q3q", *lengths, *begins, 0, 2, 3)
    pathlib.Path(f"{prefix}.idx").write_bytes(head + lists)
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(sum(lengths))
    found = sources.MegatronDataSource(prefix, unit="document").lengths()
    assert (found.dtype, found.tolist()) == (np.int64, [2**32 - 2, 5])
    found = sources.MegatronDataSource([prefix, prefix]).lengths()
    assert (found.dtype, found.tolist()) == (np.int32, lengths * 2)
