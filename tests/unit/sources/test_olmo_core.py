"""Tests that token arrays read as OLMo-core reads them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import sources
from support import extras, olmo_packing

utils = extras.olmo_core("utils")
datasets = extras.olmo_core("numpy_dataset")

PAD, BOS, EOS = 0, 1, 2
VOCABULARY = 20
DTYPES = st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64])
TOKENS = st.lists(st.integers(BOS, 5), min_size=1, max_size=40)


@pytest.fixture
def paths(tmp_path):
    """Return two files of documents that end with EOS, of up to 8 tokens."""
    generator = np.random.default_rng(0)
    files = []
    for number in range(2):
        lengths = generator.integers(1, 9, 50)
        tokens = generator.integers(3, VOCABULARY, lengths.sum()).astype(np.uint16)
        tokens[np.cumsum(lengths) - 1] = EOS
        files.append(tmp_path / f"part-{number}.npy")
        tokens.tofile(files[-1])
    return files


def open_theirs(kind, paths, work_dir, sequence_length, **options):
    """Return a prepared data set of OLMo-core."""
    data_set = getattr(datasets, kind)(
        *paths,
        sequence_length=sequence_length,
        pad_token_id=PAD,
        eos_token_id=EOS,
        vocab_size=VOCABULARY,
        dtype=np.uint16,
        **options,
    )
    data_set.work_dir = work_dir
    data_set.prepare()
    return data_set


@given(TOKENS, DTYPES, st.sampled_from([None, BOS]))
@settings(max_examples=100, deadline=None)
def test_documents_match_olmo_core(tmp_path_factory, values, dtype, bos):
    path = tmp_path_factory.mktemp("drawn") / "part.npy"
    np.array(values, dtype).tofile(path)
    spans = utils.iter_document_indices(
        path, eos_token_id=EOS, bos_token_id=bos, dtype=dtype
    )
    theirs = [utils.load_array_slice(path, *map(int, span), dtype) for span in spans]
    ours = list(sources.TokenArrayDataSource(path, dtype, EOS, bos_id=bos))
    if values[-1] != EOS:  # OLMo-core drops the tokens after the last document.
        rest = ours.pop()
        assert sum(map(len, theirs)) + len(rest) == len(values)
    assert [document.tolist() for document in ours] == [
        document.tolist() for document in theirs
    ]
    assert all(document.dtype == dtype for document in ours + theirs)


def test_sizes_match_the_metadata_of_olmo_core(paths):
    (path, _) = paths
    utils.write_document_indices(path, dtype=np.uint16, eos_token_id=EOS)
    spans = np.array(utils.get_document_indices(path))
    source = sources.TokenArrayDataSource(path, np.uint16, EOS)
    sizes = source.sizes(range(len(source))) // 2
    assert sizes.tolist() == (spans[:, 1] - spans[:, 0]).tolist()


def test_documents_match_padded_instances(paths, tmp_path):
    theirs = open_theirs("NumpyPaddedFSLDataset", paths, tmp_path, 8)
    source = sources.TokenArrayDataSource(paths, np.uint16, EOS)
    assert len(source) == len(theirs) == 100
    for document, instance in zip(source, theirs, strict=True):
        tokens = instance["input_ids"][instance["label_mask"]]
        assert document.tolist() == tokens.tolist()


def test_documents_match_packed_instances(paths, tmp_path):
    theirs = open_theirs("NumpyPackedFSLDataset", paths, tmp_path, 16)
    expected = []
    for path in paths:  # OLMo-core packs each file by itself.
        documents = list(sources.TokenArrayDataSource(path, np.uint16, EOS))
        rows = olmo_packing.pack([len(document) for document in documents], 16)
        for row in rows:
            tokens = np.concatenate([documents[number] for number in row])
            expected.append(np.pad(tokens, (0, 16 - len(tokens))).tolist())
    assert [theirs[i]["input_ids"].tolist() for i in range(len(theirs))] == expected


def test_chunks_of_documents_match_instances(paths, tmp_path):
    theirs = open_theirs(
        "NumpyFSLDataset", paths, tmp_path, 16, generate_doc_lengths=True
    )
    expected = []
    for path in paths:
        source = sources.TokenArrayDataSource(path, np.uint16, EOS)
        tokens = np.concatenate(list(source))
        expected.extend(tokens[: len(tokens) // 16 * 16].reshape(-1, 16).tolist())
    assert [theirs[i]["input_ids"].tolist() for i in range(len(theirs))] == expected
