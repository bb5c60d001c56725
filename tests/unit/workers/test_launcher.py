"""Tests of the launcher, its zygotes and workers, driven through _core.WorkerLog."""

import json
import os
import signal
import subprocess
import sys

import pytest

from faults.scripts import command, environment, run
from gristmill import _core
from gristmill._workers import parent
from support.toy_pools import (
    DEADLINE_S,
    FOLDER,
    ToyPool,
    await_gone,
    children_of,
    launchers,
    parent_of,
    start_workers,
    watched,
)
from support.waiting import wait_for

pytestmark = pytest.mark.multiprocess


@pytest.fixture
def make_pool(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    pools = []

    def make(program, **options):
        pools.append(ToyPool(program, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def output(capfd):
    """Capture output of a new launcher; an older one would keep its own stderr."""
    _core.shutdown_supervisor()
    yield capfd
    _core.shutdown_supervisor()


def test_workers_start_once_with_state_of_parent(make_pool, tmp_path, monkeypatch):
    monkeypatch.setenv("PLACE", "here")
    monkeypatch.chdir(tmp_path)
    pool = make_pool("run")
    start_workers(pool, 4)
    pool.await_events("worker_notified", 1)
    found = pool.findings(4)
    assert sorted(line["worker"] for line in found) == [0, 1, 2, 3]
    assert len({line["zygote"] for line in found}) == 1
    for line in found:
        assert line["cwd"] == os.path.realpath(tmp_path)
        assert line["place"] == "here"
        assert line["path"] == str(FOLDER)
        assert not line["loaded_here"]


def test_workers_hold_only_their_own_descriptors(make_pool):
    pool = make_pool("run")
    start_workers(pool, 3)
    for line in pool.findings(3):
        # Blob, arena, eventfd, this process, and the listed directory.
        assert len(line["fds"]) == 5


def test_workers_draw_different_random_numbers(make_pool):
    pool = make_pool("run")
    start_workers(pool, 3)
    drawn = [number for line in pool.findings(3) for number in line["drawn"]]
    assert len(set(drawn)) == 6


def test_killed_worker_is_reported_and_can_restart(make_pool):
    pool = make_pool("run")
    start_workers(pool, 2)
    victim = next(line["pid"] for line in pool.findings(2) if line["worker"] == 1)
    os.kill(victim, signal.SIGKILL)
    assert pool.await_events("exited", 1) == [("exited", 1, 1, 0, "")]
    assert pool.await_events("exit_status", 1) == [
        ("exit_status", 1, 1, signal.SIGKILL, "")
    ]
    pool.core.start_worker(1, 2)
    assert pool.await_events("started", 3)[-1] == ("started", 1, 2, 0, "")


def test_killed_zygote_is_replaced(make_pool):
    pool = make_pool("run")
    start_workers(pool, 3)
    zygote = pool.findings(3)[0]["zygote"]
    pool.await_events(
        "started", 3
    )  # A worker whose start is not reported yet would be started again.
    os.kill(zygote, signal.SIGKILL)
    pool.await_events("exited", 3)
    start_workers(pool, 3, generation=2)
    assert pool.findings(6)[-1]["zygote"] != zygote


def test_killed_launcher_is_replaced_for_every_pool(make_pool):
    pools = [make_pool("run"), make_pool("run")]
    for pool in pools:
        start_workers(pool, 2)
    zygotes = [pool.findings(2)[0]["zygote"] for pool in pools]
    for pool in pools:
        pool.await_events("started", 2)
    launcher = parent_of(zygotes[0])
    assert parent_of(zygotes[1]) == launcher
    ending = watched(launcher, *zygotes)
    os.kill(launcher, signal.SIGKILL)
    for pool in pools:
        pool.await_events("exited", 2)
        start_workers(pool, 2, generation=2)
        pool.await_events("started", 4)
    await_gone(ending)


def test_all_workers_start_while_processes_are_killed(make_pool):
    pool = make_pool("run")
    for generation in range(1, 9):
        start_workers(pool, 3, generation)
        victims = launchers()
        if generation % 2:
            victims = [pid for launcher in victims for pid in children_of(launcher)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        pool.await_events("started", 3 * generation)
        for worker in range(3):
            pool.core.kill(worker)
        pool.await_events("exited", 3 * generation)
    for what in ("started", "exited"):
        told = [event[1:3] for event in pool.seen if event[0] == what]
        assert sorted(told) == [(w, g) for w in range(3) for g in range(1, 9)]


def test_failed_load_reports_its_traceback(make_pool):
    pool = make_pool("raise")
    start_workers(pool, 2)
    (failed,) = pool.await_events("failed", 1)
    assert "ImportError: no luck" in failed[4]
    assert "in load" in failed[4]


def test_missing_entry_module_is_a_failure(make_pool):
    pool = make_pool("run", entry="gristmill_no_such_module")
    (failed,) = pool.await_events("failed", 1)
    assert "No module named 'gristmill_no_such_module'" in failed[4]


def test_load_that_exits_fails_after_three_attempts(make_pool):
    pool = make_pool("exit")
    start_workers(pool, 1)
    (failed,) = pool.await_events("failed", 1)
    assert "3 times before a worker had started; last: exit code 7" in failed[4]


def test_threads_in_zygote_make_each_worker_load(output, make_pool):
    pool = make_pool("threads")
    start_workers(pool, 2)
    assert all(line["loaded_here"] for line in pool.findings(2))
    assert (
        output.readouterr().err.count("Unpickling the pipeline started 1 thread") == 1
    )


def test_blas_threads_are_ignored(make_pool):
    pool = make_pool("blas")
    start_workers(pool, 2)
    assert not any(line["loaded_here"] for line in pool.findings(2))


def test_jemalloc_thread_is_ignored(make_pool):
    pool = make_pool("jemalloc")
    start_workers(pool, 2)
    assert not any(line["loaded_here"] for line in pool.findings(2))


def test_returning_worker_exits_0_and_flushes_output(output, make_pool):
    pool = make_pool("end")
    start_workers(pool, 1)
    assert pool.await_events("exit_status", 1) == [("exit_status", 0, 1, 0, "")]
    assert output.readouterr().out == "bye\n"


def test_raising_worker_exits_1_and_prints_error(output, make_pool):
    pool = make_pool("break")
    start_workers(pool, 1)
    assert pool.await_events("exit_status", 1) == [("exit_status", 0, 1, 1 << 8, "")]
    assert "ValueError: broken toy" in output.readouterr().err


def test_signals_to_group_end_no_process(make_pool):
    pool = make_pool("run")
    start_workers(pool, 1)
    (line,) = pool.findings(1)
    for pid in (line["pid"], line["zygote"], parent_of(line["zygote"])):
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    pool.core.start_worker(1, 1)
    pool.findings(2)
    pool.seen += pool.core.events()
    assert not [event for event in pool.seen if event[0] == "exited"]


def test_dismiss_ends_processes_even_while_loading(make_pool):
    running, stuck = make_pool("run"), make_pool("stuck")
    start_workers(running, 2)
    start_workers(stuck, 2)
    found = running.findings(2)
    launcher = parent_of(found[0]["zygote"])
    ending = watched(found[0]["zygote"], *(line["pid"] for line in found))
    running.core.dismiss()
    stuck.core.dismiss()
    await_gone(ending)
    wait_for(lambda: not children_of(launcher))
    assert launcher in launchers()


def test_forked_child_exits_without_effect_on_pool(make_pool):
    pool = make_pool("run")
    start_workers(pool, 1)
    pool.findings(1)
    child = os.fork()
    if child == 0:
        pool.core.start_worker(1, 1)
        pool.core.dismiss()
        _core.shutdown_supervisor()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    pool.core.start_worker(2, 1)
    assert pool.findings(2)[-1]["worker"] == 2


def started(way):
    """Start a process with a pool of four workers."""
    paths = [environment()["PYTHONPATH"], str(FOLDER)]
    return subprocess.Popen(
        command("launcher/four_workers", way),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def pids_of(script):
    found = []
    while (line := script.stdout.readline()) != "end\n":
        assert line, script.stderr.read()
        if line.strip():
            found.append(json.loads(line))
    zygote = found[0]["zygote"]
    return [line["pid"] for line in found], zygote, parent_of(zygote)


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_all_processes_end_when_parent_is_killed(stopped):
    with started("stay") as script:
        workers, zygote, launcher = pids_of(script)
        ending = watched(*workers, zygote, launcher)
        if stopped:
            os.kill(launcher, signal.SIGSTOP)
        script.kill()
        await_gone(ending)


def test_all_processes_end_when_parent_exits():
    with started("end with the input") as script:
        workers, zygote, launcher = pids_of(script)
        ending = watched(*workers, zygote, launcher)
        script.stdin.close()
        assert script.wait(DEADLINE_S) == 0
        await_gone(ending)
        assert script.stderr.read() == ""


def test_interpreter_options_reach_the_launcher(make_pool):
    pool = make_pool("run")
    start_workers(pool, 1)
    launcher = parent_of(pool.findings(1)[0]["zygote"])
    with open(f"/proc/{launcher}/cmdline", "rb") as file:
        command = file.read().decode().split("\0")
    flags = subprocess._args_from_interpreter_flags()
    assert command[: 1 + len(flags)] == [sys.executable, *flags]


def test_launcher_imports_modules_for_its_zygotes(monkeypatch):
    commands = []
    monkeypatch.setattr(
        _core, "configure_supervisor", lambda command, environ: commands.append(command)
    )
    parent.configure("entry", ["json", "os"])
    assert commands[0][-1].endswith("main('support.worker_entry', ['json', 'os'])")


def test_launcher_starts_before_the_program_is_pickled():
    assert run("launcher/started_while_pickling") == "[0, 1, 2, 3]\n"
