"""Timed reads decide whether threads read."""

import pytest

from gristmill._base import blocked_time
from gristmill._base.blocked_time import Clocks
from gristmill._engine import slow_probe
from gristmill._engine.slow_probe import SlowProbe, Trial

INTERVAL = 7


@pytest.fixture
def probe():
    return SlowProbe(slow_s=1.0, reads=3, interval=INTERVAL)


@pytest.fixture
def clock(monkeypatch):
    """Return clocks that tests set: wall time and CPU time of the process."""

    class Clock:
        wall_s = process_s = 0.0
        pauses = 0

        def read(self):
            self.pauses += 1
            return Clocks(self.wall_s, 0.0, 0.0, self.pauses, self.process_s)

        def perf_counter(self):
            return self.wall_s

    clock = Clock()
    monkeypatch.setattr(blocked_time, "clocks", clock.read)
    monkeypatch.setattr(slow_probe, "time", clock)
    return clock


def test_fast_reads_keep_the_next_ones_in_the_caller(probe):
    assert [probe.add_read(0.5) for _ in range(3)] == [False, False, True]
    assert (probe.waits, probe.until_probe, probe.trial) == (False, INTERVAL, None)


def test_unknown_read_resets_the_count_of_fast_reads(probe):
    waits = [0.5, 0.5, None, 0.5, 0.5]
    assert not any(probe.add_read(waited_s) for waited_s in waits)
    assert probe.add_read(0.5)


def test_slow_read_begins_a_trial(probe):
    assert probe.add_read(1.5)
    assert (probe.waits, probe.until_probe) == (None, 0)
    assert isinstance(probe.trial, Trial)


@pytest.mark.parametrize(
    ("waited_s", "busy_s", "waits"),
    [(2.0, 0.5, True), (2.0, 2.5, None), (0.5, 0.0, False)],
)
def test_trial_decides_by_its_median_read(probe, clock, waited_s, busy_s, waits):
    class Source:
        def __getitem__(self, key):
            clock.wall_s += waited_s
            clock.process_s += busy_s
            return key

    probe.begin_trial()
    for key in range(3):
        probe.judge_trial()
        assert probe.trial is not None
        assert probe.trial.read(Source(), key) == key
    probe.judge_trial()
    assert (probe.waits, probe.trial) == (waits, None)
    assert probe.until_probe == (0 if waits is None else INTERVAL)


@pytest.mark.parametrize(("slow_reads", "waits"), [(1, False), (2, True)])
def test_median_decides_after_a_trial_without_a_result(probe, slow_reads, waits):
    probe.decide(None)
    reads = [2.0] * slow_reads + [0.5] * (3 - slow_reads)
    assert [probe.add_read(waited_s) for waited_s in reads] == [False, False, True]
    assert (probe.waits, probe.until_probe) == (waits, INTERVAL)


def test_last_reads_decide_again_without_an_interval():
    probe = SlowProbe(slow_s=1.0, reads=3, interval=INTERVAL, waits=True)
    verdicts = []
    for seconds in [2.0, 0.5, 0.5, 2.0, 2.0]:
        probe.add(seconds)
        verdicts.append(probe.waits)
    assert verdicts == [True, True, False, False, True]


def test_quick_read_leaves_the_next_wait_unknown(probe, clock):
    def read_for(seconds):
        clock.wall_s += seconds
        return "read"

    found = [probe.read_timed(lambda s=s: read_for(s), 2) for s in (3.0, 1.0, 3.0, 3.0)]
    assert found == [("read", 1.5), ("read", 0.0), ("read", None), ("read", 1.5)]
    assert probe.record_s == 1.5
