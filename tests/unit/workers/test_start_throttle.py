"""As many workers begin at a time as there are cores."""

import os
import types

import pytest

from faults.scripts import run
from gristmill._workers import zygote
from support.toy_pools import FOLDER


@pytest.fixture
def clock(monkeypatch):
    """The time, and the processor time of each pid, as the zygote sees them."""
    times = {"now": 0.0}
    now = types.SimpleNamespace(monotonic=lambda: times["now"])
    monkeypatch.setattr(zygote, "time", now)
    monkeypatch.setattr(zygote, "_processor_time", lambda pid: times.get(pid, 0.0))
    monkeypatch.setattr(zygote.os, "sched_getaffinity", lambda pid: {0, 1})
    return times


def test_there_is_room_for_one_worker_a_core(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    assert throttle.has_room()
    throttle.add(11, pid=2)
    assert not throttle.has_room()
    throttle.drop(10)
    assert throttle.has_room()


def test_a_worker_that_waits_is_not_waited_for(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    throttle.add(11, pid=2)
    clock.update({"now": 0.04, 1: 0.001, 2: 0.04})
    assert throttle.idle_pipes() == []
    clock.update({"now": 0.051, 1: 0.001, 2: 0.05})
    assert throttle.idle_pipes() == [10]


def test_a_worker_that_computes_is_waited_for_until_it_takes_too_long(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    for tenth in range(1, 21):
        clock.update({"now": tenth / 10, 1: tenth / 10})
        assert throttle.idle_pipes() == []
    clock.update({"now": 2.1, 1: 2.1})
    assert throttle.idle_pipes() == [10]


def test_a_worker_that_stops_computing_is_not_waited_for_any_longer(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    clock.update({"now": 0.06, 1: 0.06})
    assert throttle.idle_pipes() == []
    clock.update({"now": 0.25, 1: 0.06})
    assert throttle.idle_pipes() == [10]


def test_processor_time_of_a_child_is_told():
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
def test_all_workers_start_in_the_end(program):
    run("start_throttle/six_workers", FOLDER, program)


@pytest.mark.multiprocess
def test_those_that_were_not_started_are_started_when_the_zygote_dies():
    run("start_throttle/zygote_that_dies", FOLDER)
