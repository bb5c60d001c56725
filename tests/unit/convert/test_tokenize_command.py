"""`gristmill tokenize` writes files of tokens that other libraries read."""

import gzip
import hashlib
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import sources
from gristmill._convert import tokenization
from gristmill._convert.examples import bytes_features, example
from support.cli import names, read_array_record, run, write_array_record
from support.conversions import flat
from support.tf_record_files import framed
from support.tokenizers import EOS, documents, encode, write_lines, write_tokenizer

FORMATS = ["megatron", "npy", "arrayrecord"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(tokenization, "LEAST_PIECE_BYTES", 1000)
    monkeypatch.setattr(tokenization, "MOST_PIECE_BYTES", 1000)


def read(folder, stem, file_format, dtype=np.uint16):
    """Return the tokens of each document, by the sources of Gristmill."""
    if file_format == "megatron":
        prefixes = sorted(folder.glob(f"{stem}*.idx"))
        source = sources.MegatronDataSource([path.with_suffix("") for path in prefixes])
        assert source.dtype == dtype
    elif file_format == "npy":
        source = sources.TokenArrayDataSource(
            sorted(map(str, folder.glob(f"{stem}*.npy"))), dtype, 1
        )
    else:
        records = read_array_record(*sorted(folder.glob(f"{stem}*.array_record")))
        source = [np.frombuffer(record, dtype) for record in records]
    return [ids.tolist() for ids in source]


def tokenize(*arguments):
    done = run("tokenize", *arguments)
    assert done.status == 0, done.err
    return done


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("shards", [(), ("--shards", 3)])
def test_files_match_library(tmp_path, tokenizer, small_pieces, file_format, shards):
    texts = documents(100)
    path = write_lines(tmp_path / "in.jsonl", texts)
    options = ("--format", file_format, "--suffix", EOS, "--processes", 1)
    done = tokenize(path, tmp_path / "x", "--tokenizer", tokenizer, *options, *shards)
    expected = encode(tokenizer, texts, [1])
    assert read(tmp_path, "x", file_format) == expected
    counts = f"100 documents, {sum(map(len, expected)):,} tokens of"
    assert counts in done.out
    assert not [name for name in names(tmp_path) if "piece" in name or "part" in name]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=30),
    st.sampled_from(FORMATS),
    st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_any_texts_match_library(tmp_path_factory, tokenizer, texts, form, shards):
    folder = tmp_path_factory.mktemp("drawn")
    path = write_lines(folder / "in.jsonl", texts)
    options = ("--format", form, "--suffix", 1, "--drop-empty", "--processes", 1)
    tokenize(
        *(path, folder / "x", "--tokenizer", tokenizer, "--shards", shards, *options)
    )
    expected = [ids for ids in encode(tokenizer, texts, [1]) if len(ids) > 1]
    assert read(folder, "x", form) == expected
    manifest = json.loads((folder / "x.manifest.json").read_text())
    assert manifest["documents"] == len(expected)
    assert manifest["dropped_documents"] == len(texts) - len(expected)


@pytest.mark.multiprocess
@pytest.mark.parametrize("file_format", ["megatron", "arrayrecord"])
def test_output_is_independent_of_processes(
    tmp_path, tokenizer, small_pieces, file_format
):
    path = write_lines(tmp_path / "in.jsonl", documents(60))
    for processes in 1, 3:
        tokenize(
            *(path, tmp_path / f"{processes}" / "x", "--tokenizer", tokenizer),
            *("--format", file_format, "--processes", processes),
        )
    one, three = (
        {path.name: path.read_bytes() for path in (tmp_path / n).glob("x*")}
        for n in "13"
    )
    assert one == three
    assert len(one) == (3 if file_format == "megatron" else 2)


def test_output_is_independent_of_pieces(tmp_path, tokenizer, monkeypatch):
    path = write_lines(tmp_path / "in.jsonl", documents(30))
    found = []
    for piece_bytes in 500, 1_000_000:
        monkeypatch.setattr(tokenization, "LEAST_PIECE_BYTES", piece_bytes)
        out = tmp_path / f"{piece_bytes}" / "x"
        tokenize(path, out, "--tokenizer", tokenizer, "--processes", 1)
        found.append(
            [(out.parent / f"x{end}").read_bytes() for end in (".bin", ".idx")]
        )
    assert found[0] == found[1]


def inputs_of_each_kind(folder, texts):
    """Write inputs of each kind; return their paths and options."""
    lines = write_lines(folder / "a.jsonl", texts).read_bytes()
    (folder / "a.jsonl.gz").write_bytes(
        gzip.compress(lines[:200]) + gzip.compress(lines[200:])
    )
    (folder / "a.jsonl.zst").write_bytes(
        pyarrow.Codec("zstd").compress(lines, asbytes=True)
    )
    records = lines.splitlines()
    write_array_record(folder / "json.array_record", records)
    write_array_record(folder / "text.array_record", [t.encode() for t in texts])
    examples = [example(bytes_features("text", [t.encode()])) for t in texts]
    (folder / "a.tfrecord").write_bytes(b"".join(map(framed, examples)))
    (folder / "a.txt").write_text("\n\n".join(texts))
    (folder / "files" / "deep").mkdir(parents=True)
    for i, text in enumerate(texts):
        (folder / "files" / "deep" / f"{i:03d}.txt").write_text(text)
    column = pyarrow.array(texts)
    table = pyarrow.table({"id": range(len(texts)), "text": column})
    pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=7)
    table = pyarrow.table({"body": column.dictionary_encode()})
    pyarrow.parquet.write_table(table, folder / "b.parquet")
    return [
        ("a.jsonl",),
        ("a.jsonl.gz",),
        ("a.jsonl.zst",),
        ("json.array_record",),
        ("text.array_record", "--records", "text"),
        ("a.tfrecord",),
        ("a.txt", "--from", "lines"),
        ("files",),
        ("a.parquet",),
        ("b.parquet", "--field", "body"),
    ]


def test_inputs_of_each_kind_have_same_tokens(tmp_path, tokenizer, small_pieces):
    texts = documents(12)
    expected = encode(tokenizer, texts)
    for number, (name, *options) in enumerate(inputs_of_each_kind(tmp_path, texts)):
        out = tmp_path / f"{number}" / "x"
        options += ["--tokenizer", tokenizer, "--processes", 1, "--shards", 2]
        tokenize(tmp_path / name, out, *options)
        assert read(out.parent, "x", "megatron") == expected, name


def test_inputs_keep_their_boundaries(tmp_path, tokenizer):
    first, second = documents(9)[:5], documents(9)[5:]
    paths = [
        write_lines(tmp_path / "a.jsonl", first),
        write_lines(tmp_path / "b.jsonl", second),
    ]
    options = ("--shards", "inputs", "--processes", 1)
    tokenize(*paths, tmp_path / "x", "--tokenizer", tokenizer, *options)
    shards = [
        sources.MegatronDataSource(tmp_path / f"x-0000{i}-of-00002") for i in (0, 1)
    ]
    assert [len(shard) for shard in shards] == [5, 4]


def test_manifest_describes_the_output(tmp_path, tokenizer):
    texts = [*documents(10), "naïve"]
    path = write_lines(tmp_path / "in.jsonl", texts)
    options = ("--suffix", EOS, "--prefix", 0, "--shards", 2, "--processes", 1)
    tokenize(path, tmp_path / "x", "--tokenizer", tokenizer, *options)
    manifest = json.loads((tmp_path / "x.manifest.json").read_text())
    ids = [[0, *each, 1] for each in encode(tokenizer, texts)]
    assert manifest["documents"] == 11
    assert manifest["tokens"] == len(flat(ids))
    assert manifest["text_bytes"] == sum(len(text.encode()) for text in texts)
    assert (manifest["prefix"], manifest["suffix"]) == ([0], [1])
    digest = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    assert manifest["tokenizer_sha256"] == digest
    assert [shard["documents"] for shard in manifest["shards"]] == [5, 6]
    for shard in manifest["shards"]:
        for file in shard["files"]:
            content = (tmp_path / file["name"]).read_bytes()
            assert file["bytes"] == len(content)
            assert file["sha256"] == hashlib.sha256(content).hexdigest()
    # Another option changes the hash of the recipe; another number of shards does not.
    hashes = [manifest["recipe_sha256"]]
    for name, extra in (("y", ()), ("z", ("--suffix", 0))):
        tokenize(path, tmp_path / name, "--tokenizer", tokenizer, *options[:4], *extra)
        text = (tmp_path / f"{name}.manifest.json").read_text()
        hashes.append(json.loads(text)["recipe_sha256"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_manifest_counts_dropped_documents_by_input(tmp_path, tokenizer, small_pieces):
    inputs = [["a", "", "b"] * 30, ["c"], ["", ""]]
    paths = [
        write_lines(tmp_path / f"{i}.jsonl", texts) for i, texts in enumerate(inputs)
    ]
    options = ("--tokenizer", tokenizer, "--drop-empty", "--processes", 1)
    tokenize(*paths, tmp_path / "x", *options, "--shards", 2)
    manifest = json.loads((tmp_path / "x.manifest.json").read_text())
    counts = [
        (source["documents"], source["dropped_documents"])
        for source in manifest["inputs"]
    ]
    assert counts == [(60, 30), (1, 0), (0, 2)]
    assert (manifest["documents"], manifest["dropped_documents"]) == (61, 32)


def test_libraries_write_the_same_tokens(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in.jsonl", documents(40))
    for library in "tokenizers", "gigatoken":
        options = ("--library", library, "--processes", 1)
        tokenize(path, tmp_path / library, "--tokenizer", tokenizer, *options)
    one, other = (
        (tmp_path / f"{name}.bin").read_bytes() for name in ("tokenizers", "gigatoken")
    )
    assert one == other


@pytest.mark.parametrize(
    ("file_format", "dtype"), [("megatron", "int32"), ("npy", "uint32")]
)
def test_dtype_can_be_chosen(tmp_path, tokenizer, file_format, dtype):
    texts = documents(5)
    path = write_lines(tmp_path / "in.jsonl", texts)
    options = ("--dtype", dtype, "--format", file_format, "--suffix", EOS)
    tokenize(path, tmp_path / "x", "--tokenizer", tokenizer, *options)
    found = read(tmp_path, "x", file_format, np.dtype(dtype))
    assert found == encode(tokenizer, texts, [1])


def test_large_vocabulary_needs_wide_dtype(tmp_path, tokenizer):
    content = json.loads(tokenizer.read_text())
    for token in content["added_tokens"]:
        if token["content"] == EOS:
            token["id"] = content["model"]["vocab"][EOS] = 70_000
    large = tmp_path / "large.json"
    large.write_text(json.dumps(content))
    path = write_lines(tmp_path / "in.jsonl", ["a"])
    options = ("--tokenizer", large, "--suffix", EOS, "--processes", 1)
    for file_format, dtype in ("megatron", "int32"), ("npy", "uint32"):
        tokenize(path, tmp_path / file_format, *options, "--format", file_format)
        text = (tmp_path / f"{file_format}.manifest.json").read_text()
        assert json.loads(text)["dtype"] == dtype
    done = run("tokenize", path, tmp_path / "y", *options, "--dtype", "uint16")
    assert done.status == 2
    assert "--dtype must contain the ids 0 to 70000 of the tokenizer" in done.err


def test_empty_input_makes_empty_files(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in.jsonl", [])
    for file_format in FORMATS:
        options = ("--format", file_format, "--suffix", EOS, "--processes", 1)
        tokenize(path, tmp_path / file_format, "--tokenizer", tokenizer, *options)
        assert read(tmp_path, file_format, file_format) == []
