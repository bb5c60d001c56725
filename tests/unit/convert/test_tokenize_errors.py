"""Failed tokenizations name the cause and its place, and leave no output."""

import gzip
import json
import sys

import pyarrow
import pyarrow.parquet
import pytest

from gristmill._convert import token_pieces
from support.cli import limit_files, names, run, start, write_array_record
from support.conversions import left
from support.tokenizers import EOS, documents, write_lines, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def fail(*arguments):
    done = run("tokenize", *arguments)
    assert done.err.count("\n") == 1, done.err
    return done.status, done.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"text": ', "this is not JSON: Expecting value"),
        (b'{"text": "\xff"}', "expected UTF-8, found the byte 0xff at byte 10"),
        (b'["text"]', "expected a JSON object, got a list."),
        (
            b'{"id": 1, "body": ""}',
            "there is no field 'text'. Pass --field with one of: 'id', 'body'.",
        ),
        (b'{"text": null}', "field 'text' must be a text, got null."),
        (b'{"text": 7}', "field 'text' must be a text, got 7."),
        (b'{"text": "a\\ud800"}', "field 'text' has half of a surrogate pair at"),
        (b'{"text": ""}', "this document has no tokens. Remove it, or pass --drop-em"),
        (b'{"text": "a<eos>b"}', "this text contains the token 1, which only ends"),
        (b"[" * 100_000, "this JSON is nested too deeply. Remove it."),
    ],
)
def test_wrong_line_is_located(tmp_path, tokenizer, line, expected):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' * 3 + line + b'\n{"text": "b"}\n')
    options = ("--format", "npy", "--suffix", EOS, "--processes", 1)
    status, err = fail(path, tmp_path / "x", "--tokenizer", tokenizer, *options)
    assert status == 1
    assert f"{path}: line 7: {expected}" in err
    assert left(tmp_path) == []
    assert not [name for name in names(tmp_path) if "piece" in name]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_other_white_space_is_not_a_blank_line(tmp_path, tokenizer, compress):
    path = tmp_path / "in.jsonl"
    path.write_bytes(compress(b'{"text": "a"}\n \t\r\n\x0b\x0c\n'))
    status, err = fail(path, tmp_path / "x", "--tokenizer", tokenizer)
    assert status == 1
    assert f"{path}: line 3: this is not JSON" in err


@pytest.mark.parametrize(("token", "number", "found"), [(EOS, 7, 1), ("<x>", 999, 290)])
def test_special_token_that_library_renumbers_is_an_error(
    tmp_path, token, number, found
):
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", vocabulary=290)
    content = json.loads(tokenizer.read_text())
    added = {**content["added_tokens"][1], "content": token, "id": number}
    content["added_tokens"] = [content["added_tokens"][0], added]
    tokenizer.write_text(json.dumps(content))
    path = write_lines(tmp_path / "in.jsonl", ["a"])
    options = ("--tokenizer", tokenizer, "--prefix", 2, "--suffix", token)
    status, err = fail(path, tmp_path / "x", *options)
    assert status == 1
    assert f"{token!r} has the id {number}, but the library encodes it as" in err
    assert f"as [{found}]. Correct the id" in err
    assert run("tokenize", path, tmp_path / "x", *options[:4]).status == 0


def test_wrong_records_of_other_inputs_are_located(tmp_path, tokenizer):
    records = write_array_record(tmp_path / "a.array_record", [b'{"text": "a"}', b"x"])
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_bytes(b"a")
    (tmp_path / "files" / "b.txt").write_bytes(b"b\xc3")
    table = pyarrow.table({"text": ["a", None], "n": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    for arguments, expected in (
        ((records,), "a.array_record: record 1: this is not JSON"),
        (
            (records, "--records", "example"),
            "a.array_record: record 0: this is not a t",
        ),
        ((tmp_path / "files",), "files: b.txt: expected UTF-8, found the byte 0xc3"),
        ((tmp_path / "a.parquet",), "row 1: field 'text' must be a text, got null."),
        (
            (tmp_path / "a.parquet", "--field", "body"),
            "this file has no column 'body'. Pass --field with one of: text, n.",
        ),
        ((tmp_path / "a.parquet", "--field", "n"), "column 'n' must contain texts"),
    ):
        path, *options = arguments
        options += ["--tokenizer", tokenizer, "--processes", 1, "--restart"]
        status, err = fail(path, tmp_path / "x", *options)
        assert (status, expected in err) == (1, True), err


def test_long_document_is_located(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(token_pieces, "MOST_TOKENS", 5)
    path = write_lines(tmp_path / "in.jsonl", ["a b", "a b c d e f g"])
    options = ("--tokenizer", tokenizer, "--processes", 1)
    status, err = fail(path, tmp_path / "x", *options)
    assert status == 1
    assert f"{path}: line 2: a document must have at most 5 tokens, got 13" in err


def test_fixed_input_needs_no_restart(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in.jsonl", [""])
    options = ("--tokenizer", tokenizer, "--processes", 1)
    assert fail(path, tmp_path / "x", *options)[0] == 1
    write_lines(path, ["a"])
    assert run("tokenize", path, tmp_path / "x", *options).status == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "the following arguments are required: --tokenizer"),
        (("--tokenizer", "T", "--format", "csv"), "invalid choice: 'csv'"),
        (("--tokenizer", "T", "--format", "npy"), "--format npy needs --suffix with"),
        (
            ("--tokenizer", "T", "--format", "npy", "--suffix", "1", "--prefix", "1"),
            "a last token of --suffix that is not in --prefix or --suffix before",
        ),
        (
            ("--tokenizer", "T", "--dtype", "uint32"),
            "--format megatron does not allow --dtype uint32.",
        ),
        (("--tokenizer", "T", "--dtype", "uint8"), "must contain the ids 0 to 299"),
        (("--tokenizer", "T", "--records", "text"), "--records needs ArrayRecord or"),
        (("--tokenizer", "T", "--follow-links"), "--follow-links needs a folder"),
    ],
)
def test_misuse_exits_with_status_2(tmp_path, tokenizer, options, expected):
    path = write_lines(tmp_path / "in.jsonl", ["a"])
    real = [tokenizer if option == "T" else option for option in options]
    done = run("tokenize", path, tmp_path / "x", *real)
    assert done.status == 2
    assert expected in done.err
    assert names(tmp_path) == ["in.jsonl"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file or directory."),
        ("not JSON", "expected a tokenizer.json of the tokenizers library, found"),
        ("[]", "expected a tokenizer.json of the tokenizers library, found"),
        ('{"model": {"vocab": {"a": 0}}, "added_tokens": []}', "tokenizer.json: "),
        (
            '{"model": {"vocab": {"a": 0}, "dropout": 0.1}, "added_tokens": []}',
            "this tokenizer has a dropout of 0.1, so that its results are random.",
        ),
    ],
)
def test_wrong_tokenizer_is_named(tmp_path, content, expected):
    path = write_lines(tmp_path / "in.jsonl", ["a"])
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content)
    status, err = fail(path, tmp_path / "x", "--tokenizer", file)
    assert status == 1
    assert f"{file}: " in err
    assert expected in err


def test_unknown_token_is_named(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in.jsonl", ["a"])
    options = ("--tokenizer", tokenizer, "--suffix", "</s>")
    status, err = fail(path, tmp_path / "x", *options)
    assert status == 1
    assert "this tokenizer has no token '</s>'. Pass a token of it, or an id" in err


def test_missing_library_is_named(tmp_path, tokenizer, monkeypatch):
    path = write_lines(tmp_path / "in.jsonl", ["a"])
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    token_pieces._open.cache_clear()
    options = ("--tokenizer", tokenizer, "--library", "gigatoken")
    status, err = fail(path, tmp_path / "x", *options)
    assert status == 1
    assert "this needs the gigatoken package. Install it with: pip install" in err


@pytest.mark.multiprocess
def test_full_disk_is_named_and_resumes(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in.jsonl", documents(2000))
    arguments = ("tokenize", path, tmp_path / "x", "--tokenizer", tokenizer)
    process = start(*arguments)
    limit_files(process, 50_000)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"{tmp_path}/.x.piece-000000: File too large." in err
    assert names(tmp_path) == [".x.tokenize.jsonl", "in.jsonl"]
    assert run(*arguments).status == 0
    manifest = json.loads((tmp_path / "x.manifest.json").read_text())
    assert manifest["documents"] == 2000


def test_input_as_output_is_rejected(tmp_path, tokenizer):
    path = write_array_record(tmp_path / "x.array_record", [b'{"text": "a"}'])
    options = ("--tokenizer", tokenizer, "--format", "arrayrecord", "--restart")
    status, err = fail(path, tmp_path / "x", *options)
    assert (status, "is both an input and an output" in err) == (1, True)


def test_quiet_prints_nothing(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in.jsonl", ["a"])
    arguments = (path, tmp_path / "x", "--tokenizer", tokenizer, "--quiet")
    assert run("tokenize", *arguments) == (0, "", "")
