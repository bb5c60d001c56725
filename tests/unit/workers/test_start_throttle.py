"""Tests of StartThrottle, which starts one worker per core at a time."""

import os
import types

import pytest

from faults.scripts import run
from gristmill._workers import zygote
from support.toy_pools import FOLDER


@pytest.fixture
def clock(monkeypatch):
    """Return the time and the CPU time of each pid, as seen by the zygote."""
    times = {"now": 0.0}
    now = types.SimpleNamespace(monotonic=lambda: times["now"])
    monkeypatch.setattr(zygote, "time", now)
    monkeypatch.setattr(zygote, "_processor_time", lambda pid: times.get(pid, 0.0))
    monkeypatch.setattr(zygote.os, "sched_getaffinity", lambda pid: {0, 1})
    return times


def test_room_is_one_worker_per_core(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    assert throttle.has_room()
    throttle.add(11, pid=2)
    assert not throttle.has_room()
    throttle.drop(10)
    assert throttle.has_room()


def test_idle_worker_frees_its_place(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    throttle.add(11, pid=2)
    clock.update({"now": 0.04, 1: 0.001, 2: 0.04})
    assert throttle.pipes_to_ignore() == []
    clock.update({"now": 0.051, 1: 0.001, 2: 0.05})
    assert throttle.pipes_to_ignore() == [10]


def test_busy_worker_frees_its_place_after_timeout(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    for tenth in range(1, 21):
        clock.update({"now": tenth / 10, 1: tenth / 10})
        assert throttle.pipes_to_ignore() == []
    clock.update({"now": 2.1, 1: 2.1})
    assert throttle.pipes_to_ignore() == [10]


def test_worker_frees_its_place_when_it_stops_computing(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    clock.update({"now": 0.06, 1: 0.06})
    assert throttle.pipes_to_ignore() == []
    clock.update({"now": 0.25, 1: 0.06})
    assert throttle.pipes_to_ignore() == [10]


def test_processor_time_of_child_is_returned():
    child = os.fork()
    if child == 0:
        while os.times().user < 0.02:
            pass
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert 0.01 < zygote._processor_time(child) < 1
    os.waitpid(child, 0)
    assert zygote._processor_time(child) == 0


@pytest.mark.multiprocess
@pytest.mark.parametrize("program", ["run", "waits", "computes", "end", "break"])
def test_all_workers_start_eventually(program):
    run("start_throttle/six_workers", FOLDER, program)


@pytest.mark.multiprocess
def test_waiting_workers_start_after_zygote_dies():
    run("start_throttle/zygote_that_dies", FOLDER)
