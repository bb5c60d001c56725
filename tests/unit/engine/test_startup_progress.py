"""On a terminal, a line shows that workers start."""

from types import SimpleNamespace

import pytest

from gristmill._base import progress_bar
from gristmill._engine import startup_progress

OUTPUT = SimpleNamespace(kind="output")
TIMEOUT = SimpleNamespace(kind="timeout")
NONE_YET, SOME = [(0, False, None)] * 2, [(7, True, None), (0, False, None)]


class Scheduler:
    """Returns given results, and lists given processes."""

    def __init__(self, *found, processes=NONE_YET):
        self.found = list(found)
        self.alive = processes
        self.waits = []

    def next(self, timeout_s):
        self.waits.append(timeout_s)
        return self.found.pop(0)

    def processes(self):
        return self.alive


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress_bar, "on_terminal", lambda: True)


def test_nothing_is_shown_without_a_terminal(capsys):
    scheduler = Scheduler(OUTPUT)
    assert startup_progress.wait_for_first(scheduler, 60.0) is OUTPUT
    assert scheduler.waits == [60.0]
    assert capsys.readouterr().err == ""


def test_quick_start_is_not_shown(terminal, capsys):
    assert startup_progress.wait_for_first(Scheduler(OUTPUT), -1.0) is OUTPUT
    assert capsys.readouterr().err == ""


def test_slow_start_is_shown_and_then_removed(terminal, capsys):
    scheduler = Scheduler(TIMEOUT, TIMEOUT, OUTPUT)
    assert startup_progress.wait_for_first(scheduler, -1.0) is OUTPUT
    assert scheduler.waits == [1.0, 0.2, 0.2]
    line = "\rStarting 2 workers: 0 s"
    assert capsys.readouterr().err == f"{line}{line}\r{' ' * 23}\r"


def test_running_worker_gets_the_whole_timeout(terminal, capsys):
    scheduler = Scheduler(TIMEOUT, OUTPUT, processes=SOME)
    assert startup_progress.wait_for_first(scheduler, -1.0) is OUTPUT
    assert scheduler.waits == [1.0, -1.0]
    assert capsys.readouterr().err == ""


def test_timeout_comes_when_it_is_due(terminal, monkeypatch):
    now = iter([0.0, 1.0, 5.0])
    monkeypatch.setattr(startup_progress.time, "monotonic", lambda: next(now))
    scheduler = Scheduler(TIMEOUT, TIMEOUT, TIMEOUT)
    assert startup_progress.wait_for_first(scheduler, 4.0) is TIMEOUT
    assert scheduler.waits == [1.0, 0.2, 0.0]
