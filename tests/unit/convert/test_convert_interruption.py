"""Interrupted conversions continue where they stopped."""

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys

import pytest

from gristmill import _cli
from gristmill._convert import worker_pool
from support.cli import names, read_array_record, run, shards, start, write_tf_record
from support.conversions import lines_of, sample, wait_for_lines
from support.places import TESTS
from support.waiting import wait_for


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Return the arguments of a conversion of one or two seconds, and its output."""
    folder = tmp_path_factory.mktemp("slow")
    paths = []
    for number in range(3):
        records = [r * 40 for r in sample(200, number)]
        compression = "gzip" if number == 1 else ""
        path = folder / f"{number}.tfrecord"
        paths.append(write_tf_record(path, records, compression))
    options = ("--shards", 14, "--compression", "brotli:11")
    done = run("convert", *paths, folder / "x", *options, "--processes", 2)
    assert done.status == 0, done.err
    return paths, options, [p.read_bytes() for p in shards(folder, "x", 14)]


@pytest.fixture
def long(request, tmp_path, slow):
    """Return a conversion to `out` by two processes or one, and its expected output."""
    paths, options, whole = slow
    (tmp_path / "out").mkdir()
    arguments = ("convert", *paths, tmp_path / "out" / "x", *options)
    return (*arguments, "--processes", request.param), whole


def has_processes(group):
    """Return whether a process of a group runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("long", "kills"),
    [(2, (1, 3, 6, 12)), (1, (2, 8))],  # Killed at these line counts of the journal.
    indirect=["long"],
    ids=["two processes", "one process"],
)
def test_killed_conversion_resumes_to_same_output(tmp_path, long, kills):
    arguments, whole = long
    out = tmp_path / "out"
    journal = out / ".x.convert.jsonl"
    draw = random.Random(0)
    finished = 0
    for lines in kills:
        process = start(*arguments)
        wait_for_lines(process, journal, lines)
        with contextlib.suppress(Exception):
            process.wait(draw.random() / 20)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        # No file has its final name before all are finished, and no progress is lost.
        assert not list(out.glob("x*"))
        assert lines_of(journal) >= finished
        finished = lines_of(journal)
    done = run(*arguments)
    assert done.status == 0, done.err
    assert f"{finished - 2} files already finished, the others written" in done.out
    assert [p.read_bytes() for p in shards(out, "x", 14)] == whole
    assert len(names(out)) == 15
    again = run(*arguments)
    assert (again.status, "already finished." in again.out) == (0, True)


@pytest.mark.multiprocess
@pytest.mark.parametrize("long", [2, 1], indirect=True)
def test_ctrl_c_ends_conversion_without_traceback(tmp_path, long):
    arguments, whole = long
    process = start(*arguments, start_new_session=True)
    wait_for_lines(process, tmp_path / "out" / ".x.convert.jsonl", 4)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err) == (
        "",
        "gristmill: interrupted. Run the same command again to resume.\n",
    )
    wait_for(lambda: not has_processes(process.pid))
    assert run(*arguments).status == 0
    found = [p.read_bytes() for p in shards(tmp_path / "out", "x", 14)]
    assert found == whole


class InterruptedFinder:
    """Behaves as if the user pressed Ctrl-C during an import."""

    def find_spec(self, name, *_):
        if name == "gristmill._cli.trace":
            raise KeyboardInterrupt


def test_ctrl_c_during_imports_ends_without_traceback(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "gristmill._cli.trace")
    monkeypatch.delattr(_cli, "trace")
    monkeypatch.setattr(sys, "meta_path", [InterruptedFinder(), *sys.meta_path])
    assert _cli.main(["--help"]) == 130
    assert capsys.readouterr() == ("", "gristmill: interrupted.\n")


def blocked_signals(_):
    yield signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.multiprocess
def test_workers_never_receive_ctrl_c():
    found = [blocked for _, blocked in worker_pool.run(blocked_signals, [0, 1], 2)]
    assert found == [{signal.SIGINT}] * 2
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def ignore_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.multiprocess
@pytest.mark.parametrize("long", [2, 1], indirect=True)
def test_background_conversion_ignores_ctrl_c(tmp_path, long):
    arguments, whole = long
    process = start(*arguments, start_new_session=True, preexec_fn=ignore_ctrl_c)
    wait_for_lines(process, tmp_path / "out" / ".x.convert.jsonl", 4)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    found = [p.read_bytes() for p in shards(tmp_path / "out", "x", 14)]
    assert found == whole


def test_test_suite_restores_sigint_handler():
    program = "import conftest, signal; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=TESTS,
        preexec_fn=ignore_ctrl_c,
    )
    assert done.stdout == "default_int_handler\n"


@pytest.mark.multiprocess
@pytest.mark.parametrize("long", [2], indirect=True)
def test_killed_worker_is_an_error(tmp_path, long):
    arguments, _ = long
    process = start(*arguments)
    wait_for_lines(process, tmp_path / "out" / ".x.convert.jsonl", 3)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    with open(children) as file:
        worker = int(file.read().split()[-1])
    os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("gristmill: a worker process ended by signal SIGKILL.")


def interrupted(tmp_path):
    """Return the arguments of a conversion that stopped after one of two shards."""
    paths = [
        write_tf_record(tmp_path / "a.tfrecord", [b"1", b"2"]),
        write_tf_record(tmp_path / "b.tfrecord", [b"3", b"4"]),
    ]
    arguments = ("convert", *paths, tmp_path / "x", "--shards", 2, "--processes", 1)
    content = paths[1].read_bytes()
    stamp = paths[1].stat()
    paths[1].write_bytes(content[:-1] + b"\0")  # The last record is damaged.
    os.utime(paths[1], ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert run(*arguments).status == 1
    paths[1].write_bytes(content)
    os.utime(paths[1], ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert lines_of(tmp_path / ".x.convert.jsonl") == 3
    assert names(tmp_path)[:2] == [
        ".x-00000-of-00002.array_record.part",
        ".x.convert.jsonl",
    ]
    return arguments


def test_resumes_after_problem_is_fixed(tmp_path):
    arguments = interrupted(tmp_path)
    done = run(*arguments)
    assert "1 file already finished, the others written" in done.out
    assert read_array_record(*shards(tmp_path, "x", 2)) == [b"1", b"2", b"3", b"4"]


def test_truncated_journal_loses_only_last_line(tmp_path):
    arguments = interrupted(tmp_path)
    journal = tmp_path / ".x.convert.jsonl"
    with open(journal, "ab") as file:
        file.write(b'{"shard": 1, "reco')
    done = run(*arguments)
    assert "1 file already finished, the others written" in done.out
    assert read_array_record(*shards(tmp_path, "x", 2)) == [b"1", b"2", b"3", b"4"]
    assert lines_of(journal) == 4


def test_lost_shards_are_rewritten(tmp_path):
    arguments = interrupted(tmp_path)
    (tmp_path / ".x-00000-of-00002.array_record.part").unlink()
    assert run(*arguments).status == 0
    shards(tmp_path, "x", 2)[1].unlink()
    done = run(*arguments)
    assert "1 file already finished, the others written" in done.out
    assert read_array_record(*shards(tmp_path, "x", 2)) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--group-size", 2), "writer_options was 'group_size:1,zstd:3', now it is"),
        (("--shards", 3), "outputs was x-00000-of-00002.array_record and 1 more, now"),
        (("--shards", "inputs"), "ranges was 'even', now it is 'inputs'"),
    ],
)
def test_other_options_need_restart(tmp_path, option, expected):
    arguments = interrupted(tmp_path)
    done = run(*arguments, *option)
    assert done.status == 1
    assert done.err.startswith(f"gristmill: {tmp_path}/.x.convert.jsonl: this output")
    assert expected in done.err
    done = run(*arguments, *option, "--restart")
    assert done.status == 0, done.err
    count = option[1] if option[0] == "--shards" and option[1] == 3 else 2
    found = read_array_record(*shards(tmp_path, "x", count))
    assert found == [b"1", b"2", b"3", b"4"]
    assert len(names(tmp_path)) == 2 + 1 + count


def test_other_inputs_need_restart(tmp_path):
    arguments = interrupted(tmp_path)
    path = write_tf_record(tmp_path / "b.tfrecord", [b"other", b"records"])
    done = run(*arguments)
    assert done.status == 1
    assert f"input {path} has changed: bytes was 34, now it is 44." in done.err
    done = run(*arguments[:2], *arguments[3:])
    assert "was begun with 2 inputs, now there are 1" in done.err
    assert run(*arguments, "--restart").status == 0
    found = read_array_record(*shards(tmp_path, "x", 2))
    assert found == [b"1", b"2", b"other", b"records"]


def test_concurrent_conversions_are_rejected(tmp_path):
    arguments = interrupted(tmp_path)
    with open(tmp_path / ".x.convert.jsonl", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = run(*arguments)
    assert done.status == 1
    assert "another gristmill command is writing this output" in done.err
    assert run(*arguments).status == 0
