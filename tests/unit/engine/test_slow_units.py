"""Reports about slow units."""

import pytest

import gristmill as g
from gristmill import _core
from gristmill._engine import remote


class Asked(Exception):
    """Carries the `slow_s` that the core received."""


@pytest.mark.parametrize(
    ("stall_timeout", "slow_s"),
    [(60.0, remote.SLOW_S), (1.0, remote.SLOW_S), (None, -1.0)],
)
def test_slow_units_are_reported_if_stalls_are(monkeypatch, stall_timeout, slow_s):
    def scheduler(**options):
        raise Asked(options["slow_s"])

    monkeypatch.setattr(_core, "Scheduler", scheduler)
    iterator = iter(
        g.DataLoader(
            data_source=range(9),
            sampler=g.SequentialSampler(9),
            operations=[],
            worker_count=1,
            stall_timeout=stall_timeout,
        )
    )
    with pytest.raises(Asked) as caught:
        next(iterator)
    assert caught.value.args == (slow_s,)


class NextResult:
    """A result of a scheduler's `next`."""

    needed_bytes = 0

    def __init__(self, kind, **values):
        self.kind = kind
        self.__dict__ |= values


class Scripted:
    """A scheduler that returns given results and records the timeouts."""

    def __init__(self, found):
        self.found = found
        self.timeouts = []

    def next(self, timeout_s):
        self.timeouts.append(timeout_s)
        return self.found.pop(0)


class Quiet:
    """Workers that can report a stack and nothing else."""

    def activity(self, worker):
        return "a stack"


def scripted_run(scheduler, stall_action):
    run = remote.RemoteRun.__new__(remote.RemoteRun)
    run._options = remote.RemoteOptions(
        workers=1, buffer=1, max_restarts=1, memory_limit=0, stall_timeout=60.0,
        stall_action=stall_action,
    )  # fmt: skip
    run._successor, run._has_waited = None, True
    run._running = remote._ScheduledWorkers(scheduler, Quiet())
    return run


def test_output_waiting_for_memory_kills_no_worker(caplog):
    waits = {"worker": -1, "stream": 2, "needed_bytes": 30}
    waits |= {"used_bytes": 80, "limit_bytes": 100}
    run = scripted_run(
        Scripted([NextResult("timeout", **waits), NextResult("end")]), "restart"
    )
    with pytest.raises(StopIteration):
        run.next()  # Quiet cannot kill.
    (record,) = caplog.records
    assert record.getMessage() == (
        "No output for 60 s: the next output of stream 2 needs memory that later"
        " outputs occupy. 80 of memory_limit=100 bytes are in use. Raise memory_limit"
        " or use fewer workers."
    )


def test_slow_unit_does_not_extend_the_timeout(caplog):
    slow = {"worker": 0, "stream": 2, "record": 7, "idle": False}
    slow |= {"busy_s": 6.5, "usual_s": 0.01, "waited_s": 6.0}
    stalled = {"worker": 0, "stream": 2, "record": 7, "idle": False}
    found = [
        NextResult("slow", **slow),
        NextResult("timeout", **stalled),
        NextResult("end"),
    ]
    scheduler = Scripted(found)
    run = scripted_run(scheduler, "warn")
    with pytest.raises(StopIteration):
        run.next()
    assert scheduler.timeouts == [60.0, 54.0, 60.0]
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == (
        "Worker 0 works on record 7. It has spent 6.5 s on this unit of stream 2;"
        " earlier units took 0.01 s on average.\na stack"
    )
    assert said[1].startswith("No output for 60 s: worker 0 works on record 7")
