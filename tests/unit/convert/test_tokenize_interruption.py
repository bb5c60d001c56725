"""Interrupted tokenizations continue to the same output."""

import contextlib
import itertools
import json
import os
import signal
import tempfile

import pytest

from gristmill._convert import tokenization
from support.cli import names, run, start
from support.conversions import lines_of, wait_for_lines
from support.tokenizers import documents, write_lines, write_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the arguments of a tokenization of about a second, and its output."""
    folder = tmp_path_factory.mktemp("slow")
    tokenizer = write_tokenizer(folder / "tokenizer.json", vocabulary=260)
    path = write_lines(folder / "in.jsonl", documents(500) * 30)
    arguments = (path, "--tokenizer", tokenizer, "--suffix", 1, "--shards", 3)
    done = run("tokenize", path, folder / "x", *arguments[1:], "--processes", 1)
    assert done.status == 0, done.err
    return arguments, files(folder)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("x*")}


def arguments_to(folder, whole, processes=2):
    (path, *options), _ = whole
    folder.mkdir(exist_ok=True)
    return ("tokenize", path, folder / "x", *options, "--processes", processes)


@pytest.mark.multiprocess
def test_killed_tokenization_resumes_to_same_output(tmp_path, whole):
    arguments = arguments_to(tmp_path / "out", whole)
    journal = tmp_path / "out" / ".x.tokenize.jsonl"
    finished = 0
    for lines in 3, 5:
        process = start(*arguments)
        wait_for_lines(process, journal, lines)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert files(tmp_path / "out") == {}
        assert lines_of(journal) >= finished
        finished = lines_of(journal)
    done = run(*arguments)
    assert done.status == 0, done.err
    assert files(tmp_path / "out") == whole[1]
    assert len(names(tmp_path / "out")) == 8
    assert "already finished." in run(*arguments).out


@pytest.mark.multiprocess
def test_killed_worker_is_an_error_and_resumes(tmp_path, whole):
    arguments = arguments_to(tmp_path / "out", whole)
    process = start(*arguments)
    wait_for_lines(process, tmp_path / "out" / ".x.tokenize.jsonl", 3)
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        os.kill(int(file.read().split()[-1]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("gristmill: a worker process ended by signal SIGKILL.")
    assert run(*arguments).status == 0
    assert files(tmp_path / "out") == whole[1]


@pytest.fixture
def short(tmp_path, monkeypatch):
    """Return a tokenization in one process of two shards and several pieces."""
    monkeypatch.setattr(tokenization, "LEAST_PIECE_BYTES", 1000)
    monkeypatch.setattr(tokenization, "MOST_PIECE_BYTES", 1000)
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    path = write_lines(tmp_path / "in.jsonl", documents(20))
    return (path, "--tokenizer", tokenizer, "--shards", 2), tmp_path / "out"


@pytest.mark.parametrize("call", ["fsync", "unlink", "replace"])
def test_stop_at_any_call_resumes_to_same_output(short, monkeypatch, call):
    assert run(*arguments_to(short[1], short, 1)).status == 0
    expected = files(short[1])
    original = getattr(os, call)
    for limit in itertools.count(1):
        out = short[1].parent / f"{limit}"
        calls = itertools.count(1)

        def stop(*arguments, calls=calls, limit=limit, **options):
            if next(calls) == limit:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        with monkeypatch.context() as patched:
            # Stopping the removal of the temporary folder leaves it.
            patched.setattr(tempfile, "tempdir", str(short[1].parent))
            patched.setattr(os, call, stop)
            done = run(*arguments_to(out, short, 1))
        if done.status == 0:
            break
        assert done.status == 130
        done = run(*arguments_to(out, short, 1))
        assert done.status == 0, done.err
        assert files(out) == expected
        assert len(names(out)) == 6
    assert limit > 4


@pytest.mark.parametrize("lost", [".bin", ".idx"])
def test_lost_files_are_written_again(short, lost):
    arguments = arguments_to(short[1], short, 1)
    assert run(*arguments).status == 0
    expected = files(short[1])
    (short[1] / f"x-00001-of-00002{lost}").unlink()
    done = run(*arguments)
    assert done.status == 0, done.err
    assert "already finished" not in done.out
    assert files(short[1]) == expected


def test_damaged_piece_is_an_error(short, monkeypatch):
    arguments = arguments_to(short[1], short, 1)
    with monkeypatch.context() as patched:
        patched.setattr(tokenization, "write_shard", None)
        with contextlib.suppress(TypeError):
            run(*arguments)
    piece = short[1] / ".x.piece-000001"
    content = bytearray(piece.read_bytes())
    content[0] ^= 1
    piece.write_bytes(content)
    done = run(*arguments)
    assert done.status == 1
    assert f"{piece}: this file is not what was written." in done.err
    assert run(*arguments, "--restart").status == 0


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--suffix", 1), "suffix was [], now it is 1"),
        (("--format", "npy", "--suffix", 1), "format was 'megatron', now it is 'npy'"),
        (("--dtype", "int32"), "dtype was 'uint16', now it is 'int32'"),
        (("--field", "id"), "has changed: field was text, now it is id."),
        (("--library", "gigatoken"), "library was 'tokenizers"),
    ],
)
def test_other_options_need_restart(short, option, expected):
    arguments = arguments_to(short[1], short, 1)
    assert run(*arguments).status == 0
    done = run(*arguments, *option)
    assert done.status == 1
    assert expected in done.err
    if option[0] != "--field":
        assert run(*arguments, *option, "--restart").status == 0


def test_changed_tokenizer_needs_restart(short):
    arguments = arguments_to(short[1], short, 1)
    assert run(*arguments).status == 0
    write_tokenizer(short[0][2], vocabulary=270)
    done = run(*arguments)
    assert done.status == 1
    assert "tokenizer_sha256 was" in done.err


def test_restart_removes_all_earlier_files(short):
    arguments = arguments_to(short[1], short, 1)
    assert run(*arguments, "--shards", 4).status == 0
    options = ("--format", "npy", "--suffix", 1, "--shards", 3)
    assert run(*arguments, *options, "--restart").status == 0
    assert not [*short[1].glob("*.bin"), *short[1].glob("*.idx")]
    (short[1] / ".x.piece-000099").write_bytes(b"")
    (short[1] / ".xy.piece-000099").write_bytes(b"kept")
    assert run(*arguments, "--restart").status == 0
    assert names(short[1]) == [
        *(".x.tokenize.jsonl", ".xy.piece-000099"),
        *("x-00000-of-00002.bin", "x-00000-of-00002.idx"),
        *("x-00001-of-00002.bin", "x-00001-of-00002.idx", "x.manifest.json"),
    ]


def test_files_of_others_are_not_replaced(short):
    arguments = arguments_to(short[1], short, 1)
    for name in "x.manifest.json", "x-00001-of-00002.idx":
        (short[1] / name).write_text("mine")
        done = run(*arguments)
        assert done.status == 1
        assert f"{name} exists already, and this conversion did not make it" in done.err
        assert (short[1] / name).read_text() == "mine"
        (short[1] / name).unlink()


def test_journal_lists_pieces_and_shards(short):
    assert run(*arguments_to(short[1], short, 1)).status == 0
    lines = (short[1] / ".x.tokenize.jsonl").read_text().splitlines()
    kinds = [next(iter(json.loads(line))) for line in lines]
    assert kinds[:3] == ["conversion", "counts", "piece"]
    assert kinds[-2:] == ["shard", "shard"]
