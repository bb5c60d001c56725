"""The launcher, its zygotes and workers, driven through _core.WorkerLog."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from gristmill import _core
from toy_crews import (
    DEADLINE_S,
    TOY,
    Crew,
    await_gone,
    children_of,
    hire,
    launchers,
    parent_of,
    watched,
)

pytestmark = pytest.mark.multiprocess


@pytest.fixture
def enlist(tmp_path, monkeypatch):
    (tmp_path / "gristmill_toy.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    crews = []

    def make(program, **options):
        crews.append(Crew(program, **options))
        return crews[-1]

    yield make
    for crew in crews:
        crew.close()


@pytest.fixture
def output(capfd):
    """What processes print; a launcher that ran before would keep its own stderr."""
    _core.shutdown_supervisor()
    yield capfd
    _core.shutdown_supervisor()


def test_workers_are_born_once_each_and_resemble_the_parent(
    enlist, tmp_path, monkeypatch
):
    monkeypatch.setenv("PLACE", "here")
    monkeypatch.chdir(tmp_path)
    crew = enlist("run")
    hire(crew, 4)
    crew.await_events("slot_requested", 1)
    found = crew.findings(4)
    assert sorted(line["worker"] for line in found) == [0, 1, 2, 3]
    assert len({line["zygote"] for line in found}) == 1
    for line in found:
        assert line["cwd"] == os.path.realpath(tmp_path)
        assert line["place"] == "here"
        assert line["path"] == str(tmp_path)
        assert not line["loaded_here"]


def test_workers_hold_no_descriptors_but_their_own(enlist):
    crew = enlist("run")
    hire(crew, 3)
    for line in crew.findings(3):
        # Blob, arena, knock, the pidfd of this process, and one to list the directory.
        assert len(line["fds"]) == 5


def test_workers_draw_different_random_numbers(enlist):
    crew = enlist("run")
    hire(crew, 3)
    drawn = [number for line in crew.findings(3) for number in line["drawn"]]
    assert len(set(drawn)) == 6


def test_killed_worker_is_told_and_can_be_hired_again(enlist):
    crew = enlist("run")
    hire(crew, 2)
    victim = next(line["pid"] for line in crew.findings(2) if line["worker"] == 1)
    os.kill(victim, signal.SIGKILL)
    assert crew.await_events("exited", 1) == [("exited", 1, 1, 0, "")]
    assert crew.await_events("exit_status", 1) == [
        ("exit_status", 1, 1, signal.SIGKILL, "")
    ]
    crew.core.start_worker(1, 2)
    assert crew.await_events("started", 3)[-1] == ("started", 1, 2, 0, "")


def test_killed_zygote_is_replaced(enlist):
    crew = enlist("run")
    hire(crew, 3)
    zygote = crew.findings(3)[0]["zygote"]
    crew.await_events("started", 3)  # One that nobody told of would be born again.
    os.kill(zygote, signal.SIGKILL)
    crew.await_events("exited", 3)
    hire(crew, 3, generation=2)
    assert crew.findings(6)[-1]["zygote"] != zygote


def test_killed_launcher_is_replaced_for_every_crew(enlist):
    crews = [enlist("run"), enlist("run")]
    for crew in crews:
        hire(crew, 2)
    zygotes = [crew.findings(2)[0]["zygote"] for crew in crews]
    for crew in crews:
        crew.await_events("started", 2)
    launcher = parent_of(zygotes[0])
    assert parent_of(zygotes[1]) == launcher
    ending = watched(launcher, *zygotes)
    os.kill(launcher, signal.SIGKILL)
    for crew in crews:
        crew.await_events("exited", 2)
        hire(crew, 2, generation=2)
        crew.await_events("started", 4)
    await_gone(ending)


def test_every_hire_is_born_whoever_is_killed_meanwhile(enlist):
    crew = enlist("run")
    for generation in range(1, 9):
        hire(crew, 3, generation)
        victims = launchers()
        if generation % 2:
            victims = [pid for launcher in victims for pid in children_of(launcher)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        crew.await_events("started", 3 * generation)
        for worker in range(3):
            crew.core.kill(worker)
        crew.await_events("exited", 3 * generation)
    for what in ("started", "exited"):
        told = [event[1:3] for event in crew.seen if event[0] == what]
        assert sorted(told) == [(w, g) for w in range(3) for g in range(1, 9)]


def test_failed_load_brings_its_traceback(enlist):
    crew = enlist("raise")
    hire(crew, 2)
    (failed,) = crew.await_events("failed", 1)
    assert "ImportError: no luck" in failed[4]
    assert "in load" in failed[4]


def test_missing_entry_module_is_a_failure(enlist):
    crew = enlist("run", entry="gristmill_no_such_module")
    (failed,) = crew.await_events("failed", 1)
    assert "No module named 'gristmill_no_such_module'" in failed[4]


def test_load_that_ends_the_process_is_a_failure_after_three_tries(enlist):
    crew = enlist("exit")
    hire(crew, 1)
    (failed,) = crew.await_events("failed", 1)
    assert "3 times before a worker had started; last: exit code 7" in failed[4]


def test_threads_make_every_worker_load_for_itself(output, enlist):
    crew = enlist("threads")
    hire(crew, 2)
    assert all(line["loaded_here"] for line in crew.findings(2))
    assert (
        output.readouterr().err.count("unpickling the pipeline started 1 thread") == 1
    )


def test_threads_of_blas_are_no_threads(enlist):
    crew = enlist("blas")
    hire(crew, 2)
    assert not any(line["loaded_here"] for line in crew.findings(2))


def test_the_thread_of_jemalloc_is_no_thread(enlist):
    crew = enlist("jemalloc")
    hire(crew, 2)
    assert not any(line["loaded_here"] for line in crew.findings(2))


def test_worker_that_returns_exits_with_0_and_its_output_flushed(output, enlist):
    crew = enlist("end")
    hire(crew, 1)
    assert crew.await_events("exit_status", 1) == [("exit_status", 0, 1, 0, "")]
    assert output.readouterr().out == "bye\n"


def test_worker_that_raises_exits_with_1_and_prints_why(output, enlist):
    crew = enlist("break")
    hire(crew, 1)
    assert crew.await_events("exit_status", 1) == [("exit_status", 0, 1, 1 << 8, "")]
    assert "ValueError: broken toy" in output.readouterr().err


def test_signals_to_the_group_end_nobody(enlist):
    crew = enlist("run")
    hire(crew, 1)
    (line,) = crew.findings(1)
    for pid in (line["pid"], line["zygote"], parent_of(line["zygote"])):
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    crew.core.start_worker(1, 1)
    crew.findings(2)
    crew.seen += crew.core.events()
    assert not [event for event in crew.seen if event[0] == "exited"]


def test_dismissal_ends_the_processes_even_while_loading(enlist):
    running, stuck = enlist("run"), enlist("stuck")
    hire(running, 2)
    hire(stuck, 2)
    found = running.findings(2)
    launcher = parent_of(found[0]["zygote"])
    ending = watched(found[0]["zygote"], *(line["pid"] for line in found))
    running.core.dismiss()
    stuck.core.dismiss()
    await_gone(ending)
    deadline = time.monotonic() + 2
    while children_of(launcher):
        assert time.monotonic() < deadline
    assert launcher in launchers()


def test_forked_child_has_no_engine_and_ends_quietly(enlist):
    crew = enlist("run")
    hire(crew, 1)
    crew.findings(1)
    child = os.fork()
    if child == 0:
        crew.core.start_worker(1, 1)
        crew.core.dismiss()
        _core.shutdown_supervisor()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    crew.core.start_worker(2, 1)
    assert crew.findings(2)[-1]["worker"] == 2


SCRIPT = """
import os, sys, time
from gristmill import _core
from gristmill._workers import launcher
launcher.configure("gristmill._engine.worker")
blob, arena = os.memfd_create("blob"), os.memfd_create("arena")
arena = os.open(f"/proc/self/fd/{arena}", os.O_RDWR | os.O_APPEND)
crew = _core.WorkerLog(arena, blob, launcher.setup("gristmill_toy"))
for worker in range(4):
    crew.start_worker(worker, 1)
while os.pread(arena, 1 << 16, 0).count(b"\\n") < 4:
    time.sleep(0.002)
print(os.pread(arena, 1 << 16, 0).decode(), flush=True)
print("end", flush=True)
"""


def run_script(tmp_path, ending):
    (tmp_path / "gristmill_toy.py").write_text(TOY)
    paths = [str(tmp_path), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT) + ending],
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
def test_all_end_when_the_parent_is_killed(tmp_path, stopped):
    with run_script(tmp_path, "time.sleep(1000)") as script:
        workers, zygote, launcher = pids_of(script)
        ending = watched(*workers, zygote, launcher)
        if stopped:
            os.kill(launcher, signal.SIGSTOP)
        script.kill()
        await_gone(ending)


def test_all_end_when_the_parent_exits(tmp_path):
    with run_script(tmp_path, "sys.stdin.read()") as script:
        workers, zygote, launcher = pids_of(script)
        ending = watched(*workers, zygote, launcher)
        script.stdin.close()
        assert script.wait(DEADLINE_S) == 0
        await_gone(ending)
        assert script.stderr.read() == ""


def test_interpreter_options_reach_the_launcher(enlist):
    crew = enlist("run")
    hire(crew, 1)
    launcher = parent_of(crew.findings(1)[0]["zygote"])
    with open(f"/proc/{launcher}/cmdline", "rb") as file:
        command = file.read().decode().split("\0")
    flags = subprocess._args_from_interpreter_flags()
    assert command[: 1 + len(flags)] == [sys.executable, *flags]
