"""As many workers begin at a time as there are cores."""

import os
import types

import pytest

from faults.scripts import run
from gristmill._workers import zygote
from toy_crews import TOY

# One core; what a worker of the program does before its first output is `program`.
ONE_CORE = """
import sys
sys.path.insert(0, sys.argv[1])
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from toy_crews import *
"""


@pytest.fixture
def on_one_core(tmp_path):
    """A function that runs a script there."""
    (tmp_path / "gristmill_toy.py").write_text(TOY)
    return lambda script: run(ONE_CORE + script, tmp_path)


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
    assert throttle.no_longer_busy() == []
    clock.update({"now": 0.051, 1: 0.001, 2: 0.05})
    assert throttle.no_longer_busy() == [10]


def test_a_worker_that_computes_is_waited_for_until_it_takes_too_long(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    for tenth in range(1, 21):
        clock.update({"now": tenth / 10, 1: tenth / 10})
        assert throttle.no_longer_busy() == []
    clock.update({"now": 2.1, 1: 2.1})
    assert throttle.no_longer_busy() == [10]


def test_a_worker_that_stops_computing_is_not_waited_for_any_longer(clock):
    throttle = zygote.StartThrottle()
    throttle.add(10, pid=1)
    clock.update({"now": 0.06, 1: 0.06})
    assert throttle.no_longer_busy() == []
    clock.update({"now": 0.25, 1: 0.06})
    assert throttle.no_longer_busy() == [10]


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
def test_all_workers_are_born_in_the_end(on_one_core, program):
    on_one_core(
        f"""
crew = Crew("{program}")
hire(crew, 6)
born = crew.await_events("started", 6)
assert [worker for _, worker, *_ in born] == list(range(6))
crew.close()
"""
    )


@pytest.mark.multiprocess
def test_those_that_were_not_born_are_hired_again_when_the_zygote_dies(on_one_core):
    on_one_core(
        """
crew = Crew("computes")
hire(crew, 3)
zygote = crew.findings(1)[0]["zygote"]
os.kill(zygote, signal.SIGKILL)
crew.await_events("started", 3)
crew.close()
"""
    )
