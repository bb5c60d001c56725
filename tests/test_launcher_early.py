"""A launcher that is started before there is any crew, and what it imports."""

import textwrap

import pytest

from faults.scripts import run, start
from toy_crews import TOY, await_gone, watched

pytestmark = pytest.mark.multiprocess

# What takes long to import; it remembers where that happened.
HEAVY = "import os\npid = os.getpid()\n"
# Its import does not end before the process does.
ENDLESS = "import threading\nthreading.Event().wait()\n"
PRELUDE = """
import sys
sys.path.insert(0, sys.argv[1])
from gristmill import _core, _launcher
from toy_crews import *
HEAVY = ("gristmill_heavy",)

def the_launcher():
    # A process that was just started has no name yet.
    for _ in wait_until("a launcher"):
        if found := launchers():
            return found[0]

def start_early():
    _launcher.start_early(HEAVY)
    return the_launcher()

def first_worker(modules=HEAVY):
    crew = Crew(modules=modules)
    hire(crew, 1)
    (line,) = crew.findings(1)
    launcher = parent_of(line["zygote"])
    crew.close()
    return line, launcher
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function that runs a script in which `gristmill_heavy` is a given text."""
    monkeypatch.delenv("GRISTMILL_EARLY_LAUNCHER")
    (tmp_path / "gristmill_toy.py").write_text(TOY)

    def run_with(heavy, text, runner=run):
        (tmp_path / "gristmill_heavy.py").write_text(heavy)
        return runner(PRELUDE + textwrap.dedent(text), tmp_path)

    return run_with


def test_every_zygote_is_a_fork_that_has_the_modules(script):
    script(
        HEAVY,
        """
        early = start_early()
        assert start_early() == early
        for _ in range(2):
            line, launcher = first_worker()
            assert line["imported_in"] == launcher == early
        assert launchers() == [early]
        """,
    )


def test_a_later_crew_with_modules_gets_a_launcher_of_its_own(script):
    script(
        HEAVY,
        """
        line, plain = first_worker(modules=())
        assert line["imported_in"] is None
        _launcher.start_early(HEAVY)
        line, heavy = first_worker()
        assert line["imported_in"] == heavy != plain
        assert sorted(launchers()) == sorted([plain, heavy])
        assert first_worker(modules=())[1] == plain
        """,
    )


def test_a_crew_that_wants_no_modules_takes_a_launcher_that_is_ready(script):
    script(
        HEAVY,
        """
        early = start_early()
        assert first_worker()[1] == early
        assert first_worker(modules=())[1] == early
        assert launchers() == [early]
        """,
    )


def test_a_crew_that_wants_no_modules_does_not_wait_for_them(script):
    script(
        ENDLESS,
        """
        early = start_early()
        line, plain = first_worker(modules=())
        assert plain != early
        assert sorted(launchers()) == sorted([plain, early])
        """,
    )


def test_no_thread_is_started_and_exit_does_not_wait(script):
    began = """
        before = os.listdir("/proc/self/task")
        _launcher.start_early(HEAVY)
        assert os.listdir("/proc/self/task") == before
        print(the_launcher(), flush=True)
        sys.stdin.read()
        """
    with script(ENDLESS, began, start) as process:
        ending = watched(int(process.stdout.readline()))
        process.stdin.close()
        await_gone(ending, seconds=1)
        assert process.wait(2) == 0
        assert process.stderr.read() == ""


def test_it_ends_with_a_process_that_is_killed_at_once(script):
    began = """
        print(start_early(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    with script(ENDLESS, began, start) as process:
        await_gone(watched(int(process.stdout.readline())), seconds=1)


@pytest.mark.parametrize("failure", ["raise ImportError('no luck')", "import absent_"])
def test_a_module_that_cannot_be_imported_is_the_zygotes_affair(script, failure):
    out = script(
        failure,
        """
        _launcher.start_early(HEAVY)
        line, launcher = first_worker()
        assert launchers() == [launcher]
        assert line["imported_in"] is None
        """,
    )
    assert out == ""


def test_modules_that_start_threads_are_not_kept(script):
    script(
        "import os, threading, time\npid = os.getpid()\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        """
        early = start_early()
        line, launcher = first_worker()
        assert launcher == early
        assert line["imported_in"] is None
        """,
    )


def test_a_launcher_that_died_is_replaced(script):
    script(
        HEAVY,
        """
        early = start_early()
        os.kill(early, signal.SIGKILL)
        line, launcher = first_worker()
        assert line["imported_in"] == launcher != early
        """,
    )


def test_a_forked_child_starts_its_own_and_leaves_that_of_its_parent(script):
    script(
        HEAVY,
        """
        early = start_early()
        child = os.fork()
        if child == 0:
            line, own = first_worker()
            assert line["imported_in"] == own != early
            _core.shutdown_supervisor()
            os._exit(7)
        assert os.waitpid(child, 0)[1] == 7 << 8
        assert first_worker()[1] == early
        """,
    )


def test_it_outlives_the_thread_that_asked_for_it(script):
    script(
        HEAVY,
        """
        thread = threading.Thread(target=_launcher.start_early, args=(HEAVY,))
        thread.start()
        thread.join()
        early = the_launcher()
        line, launcher = first_worker()
        assert line["imported_in"] == launcher == early
        """,
    )


def test_the_environment_can_forbid_it(script, monkeypatch):
    monkeypatch.setenv("GRISTMILL_EARLY_LAUNCHER", "0")
    script(
        HEAVY,
        """
        _launcher.start_early(HEAVY)
        assert launchers() == []
        line, launcher = first_worker()
        assert line["imported_in"] == launcher
        """,
    )


def test_worker_processes_start_none(script):
    script(
        HEAVY + "from gristmill import _launcher\n_launcher.start_early(['os'])\n",
        """
        import multiprocessing
        crew = Crew(modules=HEAVY)
        hire(crew, 2)
        found = crew.findings(2)
        assert sorted(children_of(found[0]["zygote"])) == sorted(
            line["pid"] for line in found
        )
        assert children_of(parent_of(found[0]["zygote"])) == [found[0]["zygote"]]
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(_launcher.start_early, (HEAVY,))
            assert pool.apply(launchers) == []
        """,
    )


def test_importing_the_torch_front_end_starts_it(script):
    script(
        HEAVY,
        """
        import gristmill.torch
        early = the_launcher()
        crew = Crew("torch", modules=_launcher.FOR_TORCH)
        hire(crew, 1)
        (line,) = crew.findings(1)
        assert parent_of(line["zygote"]) == early
        assert not line["loaded_here"]
        """,
    )
