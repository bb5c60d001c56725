"""`gristmill top` shows loaders of another process without their cooperation."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from faults.scripts import command, environment
from gristmill._observe import shared_words
from support.cli import COMMAND, run

DEADLINE_S = 60
PROGRAM = "cli_top/stops_at_a_record"
# The sequences that go up to the first line and clear it and all below it, and those of
# styles.
REDRAWN = re.compile(r"(?:\x1b\[(\d+)A)?\r\x1b\[J")
ESCAPES = re.compile(r"\x1b\[\d*m")
GREEN = "\x1b[32m"


@pytest.fixture
def program(tmp_path):
    """Return a function that starts the program and waits for its first batch."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with contextlib.ExitStack() as stack:

        def started(face, workers, *files):
            process = subprocess.Popen(
                command(PROGRAM, face, workers, fifo),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
                pass_fds=[file.fileno() for file in files],
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout.readline().startswith("[0, ")
            return process

        yield started


def told(pid):
    """Return the current --json output for a process."""
    done = run("top", pid, "--once", "--json", "--interval", 0.05)
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def told_when(pid, holds):
    """Return a loader and its workers as soon as `holds` accepts them."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        (loader,) = told(pid)["loaders"]
        workers = sorted(loader["workers"], key=lambda worker: worker["state"])
        if holds(loader, *workers):
            return loader, *workers
    pytest.fail(f"it never was so: {loader}")


def one_computes(loader, *workers):
    states = [worker["state"] for worker in workers]
    return states == ["computing", "waiting for work"]


def memory_file(content):
    fd = os.memfd_create("gristmill")
    os.write(fd, content)
    return contextlib.closing(os.fdopen(fd))


@pytest.mark.multiprocess
def test_shows_activity_of_each_worker(program):
    process = program("grain", 2)

    def all_is_computed(loader, *workers):
        return one_computes(loader, *workers) and loader["computed"] == 6

    loader, computing, waiting = told_when(process.pid, all_is_computed)
    assert (loader["face"], loader["streams"]) == ("grain", 2)
    assert (loader["delivered"], loader["delivered_per_s"]) == (1, 0.0)
    assert loader["ready"] == 5
    assert (loader["waiting"], loader["samples"]) == (0.0, 2)
    assert 0 < loader["memory_bytes"] < loader["memory_limit"]
    assert {computing["worker"], waiting["worker"]} == {0, 1}
    assert computing["unit"].pop("seconds") > 0
    assert computing["unit"] == {"stream": 1, "first": 0, "count": 2, "record": 3}
    assert waiting["unit"] is None
    assert computing["outputs"] + waiting["outputs"] == 6
    for worker in (computing, waiting):
        assert worker["restarts"] == 0
        assert worker["pss_bytes"] > 0
        assert worker["pid"] not in (process.pid, None)
        os.kill(worker["pid"], 0)


@pytest.mark.multiprocess
def test_shows_torchs_loaders(program):
    process = program("torch", 2)

    def asked_are_done(loader, *workers):
        return one_computes(loader, *workers) and loader["ready"] == 2

    loader, computing, _ = told_when(process.pid, asked_are_done)
    assert (loader["face"], loader["delivered"]) == ("torch", 1)
    assert computing["worker"] == 1
    assert computing["unit"].pop("seconds") > 0
    assert computing["unit"] == {
        "stream": 1,
        "first": None,
        "count": None,
        "record": None,
    }


@pytest.mark.multiprocess
def test_shows_replacement_of_killed_worker(program):
    process = program("grain", 2)
    _, _, waiting = told_when(process.pid, one_computes)
    os.kill(waiting["pid"], signal.SIGKILL)

    def another_came(loader, *workers):
        restarts = sorted(worker["restarts"] for worker in workers)
        return restarts == [0, 1] and one_computes(loader, *workers)

    _, computing, after = told_when(process.pid, another_came)
    assert (computing["restarts"], after["restarts"]) == (0, 1)
    assert after["worker"] == waiting["worker"]
    assert after["pid"] not in (waiting["pid"], None)


@pytest.mark.multiprocess
def test_shows_stopped_processes(program):
    process = program("grain", 2)
    _, _, waiting = told_when(process.pid, one_computes)
    os.kill(waiting["pid"], signal.SIGSTOP)
    _, stopped = told_when(
        process.pid, lambda loader, *workers: workers[1]["state"] == "stopped"
    )[1:]
    assert stopped["pid"] == waiting["pid"]
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert told(process.pid)["stopped"]


@pytest.mark.multiprocess
def test_prints_a_table(program):
    process = program("grain", 2)
    _, computing, _ = told_when(process.pid, one_computes)
    done = run("top", process.pid, "--once", "--interval", 0.05)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith(f"process {process.pid}: {sys.executable} -c ")
    assert lines[3] == (
        "loader 0 (grain): limit consumer, the consumer waits in 0% of 2 looks"
    )
    assert lines[4].startswith("  0 outputs/s taken, 0/s computed, 5 ready, 1 output ")
    assert lines[5].split() == (
        "worker pid for CPU memory outputs/s restarts does".split()
    )
    busy = lines[6 + computing["worker"]]
    assert busy.split()[:2] == [str(computing["worker"]), str(computing["pid"])]
    assert busy.endswith("  computing 0 to 1 of stream 1, at record 3")
    assert lines[7 - computing["worker"]].endswith("  waiting for work")


@pytest.mark.multiprocess
def test_lists_processes_with_loaders(program):
    process = program("grain", 2)
    done = run("top", "--json")
    assert done.status == 0
    found = {each["pid"]: each for each in map(json.loads, done.out.splitlines())}
    assert found[process.pid]["loaders"] == 1
    assert found[process.pid]["workers"] == 2
    lines = run("top").out.splitlines()
    assert lines[0].split() == ["PID", "loaders", "workers", "command"]
    mine = [line for line in lines if line.split()[0] == str(process.pid)]
    assert [line.split()[:3] for line in mine] == [[str(process.pid), "1", "2"]]
    # Workers share the memory, but have no loader.
    workers = {worker["pid"] for worker in told(process.pid)["loaders"][0]["workers"]}
    assert not workers & found.keys()


@pytest.mark.multiprocess
def test_worker_pid_error_names_its_parent(program):
    process = program("grain", 2)
    _, computing, _ = told_when(process.pid, one_computes)
    worker = computing["pid"]
    assert run("top", worker, "--once") == (
        1,
        "",
        f"gristmill: process {worker} is a worker. Run gristmill top {process.pid} for"
        " the process that started it.\n",
    )


@pytest.mark.multiprocess
def test_loader_without_workers_is_an_error(program):
    process = program("grain", 0)
    assert run("top", process.pid) == (
        1,
        "",
        f"gristmill: process {process.pid} has no loader with workers now. A loader"
        " without workers computes in the process itself: call report() of its"
        " iterator, or use py-spy.\n",
    )


@pytest.mark.multiprocess
def test_end_of_watched_process_stops_the_command(program):
    process = program("grain", 1)
    watching = subprocess.Popen(
        [*COMMAND, "top", str(process.pid), "--json", "--interval", "0.05"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with watching:
        assert json.loads(watching.stdout.readline())["pid"] == process.pid
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
        rest = watching.stdout.read().splitlines()
        assert all(json.loads(line)["pid"] == process.pid for line in rest)
        assert watching.wait(DEADLINE_S) == 0
    assert run("top", process.pid) == (
        1,
        "",
        f"gristmill: there is no process {process.pid}.\n",
    )


@pytest.mark.multiprocess
@pytest.mark.parametrize(("columns", "end"), [(80, "the user"), (120, "the process")])
def test_table_is_redrawn_in_place_on_terminal(program, columns, end):
    process = program("grain", 2)
    told_when(process.pid, one_computes)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    variables = {**environment(), "TERM": "xterm"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        variables.pop(name, None)
    watching = subprocess.Popen(
        [*COMMAND, "top", str(process.pid), "--interval", "0.05"],
        stdout=theirs,
        env=variables,
    )
    os.close(theirs)
    shown = b""
    with watching, contextlib.closing(os.fdopen(ours, closefd=True)):
        # The table is drawn, then drawn again over the same lines.
        while len(REDRAWN.findall(shown.decode())) < 3:
            shown += os.read(ours, 4096)
        if end == "the user":
            watching.send_signal(signal.SIGINT)
        else:
            process.stdin.close()
        with contextlib.suppress(OSError):  # The writer has exited.
            while more := os.read(ours, 4096):
                shown += more
        assert watching.wait(DEADLINE_S) == 0
    beginning, _, first, up, *_ = REDRAWN.split(shown.decode())
    assert beginning == ""
    assert first.count("\r\n") == int(up)
    assert GREEN in first
    lines = ESCAPES.sub("", first).splitlines()
    assert lines[0].startswith(f"process {process.pid}: ")
    # The command of the process is long.
    assert len(lines[0]) == max(map(len, lines)) == columns - 1
    titles = lines[-3].split()
    # Whether others fit 80 columns depends on the lengths of ids, times and sizes.
    assert {"worker", "outputs/s", "for", "CPU", "does"} <= set(titles)
    assert ("restarts" in titles) == (columns == 120)
    told_it = f"Process {process.pid} has ended.".encode() in shown
    assert told_it == (end == "the process")


def test_shared_memory_of_another_version_is_rejected():
    layout = shared_words.LAYOUT + 1
    with memory_file(struct.pack("<H6s", layout, b"grstml") + bytes(1000)):
        done = run("top", os.getpid())
    assert done == (
        1,
        "",
        f"gristmill: process {os.getpid()} runs another version of Gristmill (shared"
        f" memory must have layout {layout - 1}, got {layout}). Use the gristmill"
        " command of its environment.\n",
    )


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"what a worker is told by",
        struct.pack("<H6s", shared_words.LAYOUT, b"grstml"),
        # More workers and units than any loader has, or fewer bytes than they need.
        struct.pack("<H6s16xII", shared_words.LAYOUT, b"grstml", 5000, 8) + bytes(320),
        struct.pack("<H6s16xII", shared_words.LAYOUT, b"grstml", 2, 8) + bytes(320),
    ],
    ids=["empty", "other", "short", "absurd", "cut off"],
)
def test_memory_files_of_other_programs_are_ignored(program, content):
    with memory_file(content) as file:
        process = program("grain", 0, file)
    done = run("top", process.pid)
    assert done.status == 1
    assert "has no loader with workers now." in done.err


def test_process_without_gristmill_is_an_error():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        done = run("top", process.pid)
    assert done == (
        1,
        "",
        f"gristmill: process {process.pid} does not use Gristmill.\n",
    )


def test_zombie_process_is_reported_as_ended():
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    done = run("top", process.pid)
    process.wait()
    assert done == (1, "", f"gristmill: process {process.pid} has ended.\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_process_of_another_user_is_rejected():
    mine = os.getpid()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            os.setuid(65534)
            os.write(writing, json.dumps(run("top", mine)).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as answer:
        done = json.load(answer)
    assert done == [
        1,
        "",
        f"gristmill: process {mine} cannot be read. Run gristmill top as the user of"
        " the process.\n",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0"], "argument PID: '0' is not a process id"),
        (["me"], "argument PID: 'me' is not a process id"),
        (["1", "--interval", "0"], "'0' is not a number from 0.05 to 3600"),
        (["1", "--interval", "nan"], "'nan' is not a number from 0.05 to 3600"),
    ],
)
def test_invalid_arguments_are_named(arguments, said):
    done = run("top", *arguments)
    assert done.status == 2
    assert said in done.err
