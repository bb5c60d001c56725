"""`gristmill inspect` describes files of tokens, and decodes documents."""

import json

import numpy as np
import pytest

from support.cli import run, write_array_record, write_tf_record
from support.token_files import write_megatron
from support.tokenizers import EOS, documents, encode, write_tokenizer

DOCUMENTS = [[5, 6, 0], [7, 0], [9, 9, 9, 9, 0]]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture(scope="module", params=["megatron", "npy", "arrayrecord"])
def tokenized(request, tmp_path_factory, tokenizer):
    """Return the OUT of `gristmill tokenize`, in two shards."""
    folder = tmp_path_factory.mktemp(request.param)
    texts = folder / "texts.array_record"
    write_array_record(texts, [text.encode() for text in documents(60)])
    arguments = [texts, folder / "out" / "t", "--tokenizer", tokenizer, "--shards", 2]
    options = ["--format", request.param, "--suffix", EOS, "--records", "text"]
    done = run("tokenize", *arguments, *options)
    assert done.status == 0, done.err
    return folder / "out" / "t"


def inspected(*arguments):
    """Return the --json output for each file."""
    done = run("inspect", "--json", *arguments)
    assert (done.status, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def array(folder, documents=DOCUMENTS, dtype=np.uint16):
    path = folder / "raw.bin"
    np.concatenate(documents).astype(dtype).tofile(path)
    return path


@pytest.mark.parametrize("name", ["train", "train.bin", "train.idx", "train.*"])
def test_megatron_files_are_described(tmp_path, name):
    write_megatron(tmp_path / "train", DOCUMENTS, np.uint16)
    done = run("inspect", tmp_path / name, "--head", 2)
    assert (done.status, done.err) == (0, "")
    assert (
        done.out
        == f"""\
{tmp_path / "train"}
  format     Megatron
  size       122 B
  documents  3
  tokens     10
  dtype      uint16

  tokens of a document: least 2, median 3, mean 3.3, most 5
    < 4  2  ########################################
    < 8  1  ####################

  first 2 documents
    0  3 tokens: 5, 6, 0
    1  2 tokens: 7, 0
"""
    )


@pytest.mark.parametrize("header", [False, True])
def test_array_of_tokens_is_described(tmp_path, header):
    path = array(tmp_path)
    options = ["--dtype", "uint16"]
    if header:
        path, options = tmp_path / "x.npy", []
        np.save(path, np.concatenate(DOCUMENTS).astype(np.uint32))
    (found,) = inspected(path, "--eos", 0, *options)
    assert (found["format"], found["records"]) == ("array of tokens", 3)
    assert found["tokens"] == 10
    assert found["details"] == {"dtype": "uint32" if header else "uint16", "eos": "0"}
    assert found["sizes"]["histogram"] == [[4, 2], [8, 1]]
    assert [each["ids"] for each in found["documents"]] == DOCUMENTS


@pytest.mark.parametrize("suffix", ["", ".manifest.json"])
def test_tokenized_files_need_no_options(tokenized, tokenizer, suffix):
    name = f"{tokenized}{suffix}"
    (found,) = inspected(name, "--tokenizer", tokenizer, "--verify", "--head", 60)
    ids = encode(tokenizer, documents(60), suffix=[1])
    assert [each["ids"] for each in found["documents"]] == ids
    assert found["documents"][0]["text"] == "the <eos>"
    assert (found["path"], found["files"]) == (str(tokenized), 2)
    assert (found["verified"], found["damaged"]) == (True, [])
    assert found["tokens"] == sum(map(len, ids))
    assert found["details"]["tokenizer"] == str(tokenizer)


def test_shards_and_folder_are_found(tokenized):
    shards = inspected(f"{tokenized}-*")
    assert [found["records"] for found in shards] == [30, 30]
    (found,) = inspected(tokenized.parent)
    assert (found["path"], found["records"]) == (str(tokenized), 60)


def test_verify_lists_file_that_was_changed(tmp_path, tokenizer):
    texts = tmp_path / "x.array_record"
    write_array_record(texts, [b"the fox"])
    options = ["--tokenizer", tokenizer, "--records", "text"]
    assert run("tokenize", texts, tmp_path / "t", *options).status == 0
    content = bytearray((tmp_path / "t.bin").read_bytes())
    content[0] ^= 1
    (tmp_path / "t.bin").write_bytes(content)
    done = run("inspect", tmp_path / "t", "--verify")
    assert done.status == 1
    assert "  verified   1 file damaged, listed below\n" in done.out
    path = tmp_path / "t.bin"
    assert f"    {path}: this file is not the one of the manifest.\n" in done.out


def test_array_record_without_manifest_needs_dtype(tmp_path):
    records = [np.array(ids, np.int32).tobytes() for ids in DOCUMENTS]
    path = write_array_record(tmp_path / "x", records)
    (found,) = inspected(path, "--dtype", "int32")
    assert found["format"] == "ArrayRecord of tokens"
    assert [each["ids"] for each in found["documents"]] == DOCUMENTS
    done = run("inspect", path, "--dtype", "int64")
    assert "record 0 has 12 bytes, which is not a whole number of int64" in done.err


def test_other_tokenizer_is_reported(tokenized, tmp_path):
    other = write_tokenizer(tmp_path / "other.json", 320)
    (found,) = inspected(tokenized, "--tokenizer", other)
    assert found["details"]["tokenizer"].endswith(
        "other.json, which is not the one that encoded the documents"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "expected {stem}.idx next to it, as Megatron writes them"),
        (["--eos", 0], "Pass --dtype, such as --dtype uint16."),
        (["--dtype", "uint16"], "Pass --eos, the id of the token that ends"),
        (["--dtype", "uint16", "--eos", "x"], "--eos must be an id, such as 0, got"),
        (["--dtype", "int32", "--eos", 0], "dtype must be one of uint8, uint16"),
        (["--dtype", "uint8", "--eos", 300], "eos_id must be from 0 to 255"),
        (["--dtype", "uint16", "--eos", 0, "--verify"], "--verify needs checksums"),
    ],
)
def test_options_of_arrays_are_checked(tmp_path, options, said):
    path = array(tmp_path)
    done = run("inspect", path, *options)
    assert (done.status, done.out) == (1, "")
    assert said.format(stem=tmp_path / "raw") in done.err


def test_ids_that_tokenizer_lacks_are_an_error(tmp_path, tokenizer):
    path = array(tmp_path, [[9999, 0]])
    options = ["--dtype", "uint16", "--eos", 0, "--tokenizer", tokenizer]
    done = run("inspect", path, *options)
    assert done.status == 1
    assert "found 9999 in the documents" in done.err


def test_options_of_tokens_are_refused_for_other_files(tmp_path, tokenizer):
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")
    done = run("inspect", path, "--tokenizer", tokenizer)
    assert done.err == f"gristmill: {path}: --tokenizer needs tokens, found none.\n"
    write_megatron(tmp_path / "t", DOCUMENTS, np.uint16)
    done = run("inspect", tmp_path / "t", "--eos", 0)
    assert "--eos needs an array of tokens, found Megatron" in done.err
    done = run("inspect", tmp_path / "t", "--dtype", "int32")
    assert "--dtype is int32, but the index has uint16" in done.err


def test_empty_array_has_no_histogram(tmp_path):
    (tmp_path / "empty.npy").touch()
    (found,) = inspected(tmp_path / "empty.npy", "--dtype", "uint16", "--eos", 0)
    assert (found["records"], found["tokens"], found["sizes"]) == (0, 0, None)


def test_records_in_bin_file_are_not_tokens(tmp_path):
    path = write_tf_record(tmp_path / "x.bin", [b"one", b"two"])
    (found,) = inspected(path)
    assert (found["format"], found["records"]) == ("TFRecord", 2)


@pytest.mark.parametrize("content", ["{}", "[]", '{"format": "npy"}', "\xff"])
def test_other_manifest_is_an_error(tmp_path, content):
    path = tmp_path / "x.manifest.json"
    path.write_text(content)
    done = run("inspect", path)
    assert done.err == (
        f"gristmill: {path}: expected a manifest of gristmill tokenize, found another"
        " file.\n"
    )
