"""Tests the measurements for "auto" workers, and the limits of the host."""

import pytest

from gristmill._base import host_limits, process_usage
from gristmill._base.process_usage import ProcessUsage
from gristmill._engine.auto_run import AutoWorkers, ChosenWorkers
from gristmill._engine.auto_workers import NO_LIMIT, Decision
from gristmill._engine.worker_stats import LocalStats, LocalWorkerStats

GIB = 1 << 30
WORK_NS = 20_000_000


class Run:
    """Simulates workers that take 20 ms for an output, and a consumer that only waits.

    Attributes:
        now_ns: The simulated time.
        starting: The number of outputs until other workers have started.
    """

    def __init__(self, auto):
        self.now_ns = 1
        self.starting = 0
        self._auto = auto
        self._workers = self._next_workers = 1
        self._busy_s = 0.0

    @property
    def is_changing(self):
        return self.starting > 0

    def resize(self, count):
        self._next_workers, self.starting = count, 5

    def usage(self):
        workers = [
            LocalWorkerStats(pid, self._busy_s, 0.0, 0, 0)
            for pid in range(self._workers)
        ]
        return LocalStats(tuple(workers), {}, {})

    def take(self, outputs):
        for _ in range(outputs):
            asked_ns = self.now_ns
            self.now_ns += WORK_NS // self._workers
            self._busy_s += (self.now_ns - asked_ns) / 1e9
            if self.starting:
                self.starting -= 1
            else:
                self._workers = self._next_workers
            self._auto.count_output(self, asked_ns, self.now_ns)


@pytest.fixture
def host(monkeypatch):
    """Simulate 2 cores, memory without end, and workers of 1 GiB that only sleep."""

    def set_host(cores=2.0, memory=1 << 60, computing=0.0):
        usage = ProcessUsage("S", 0.0, GIB)
        monkeypatch.setattr(host_limits, "count_cores", lambda: cores)
        monkeypatch.setattr(host_limits, "available_memory", lambda: memory)
        monkeypatch.setattr(process_usage, "read_usage", lambda pid: usage)

    set_host()
    monkeypatch.setattr(process_usage, "read_runnable_s", lambda pid: 0.0)
    return set_host


def settled(limit=NO_LIMIT):
    auto = AutoWorkers(ChosenWorkers(), limit)
    run = Run(auto)
    run.take(20_000)
    return auto, run


def test_workers_that_sleep_are_limited_by_number_of_cores(host):
    auto, _ = settled()
    assert str(auto) == 'workers ("auto"): 1, 4, 16, 32; 32 are the most on 2 cores'
    host(cores=3.5)
    assert settled()[0].history == [1, 4, 16, 56]


def test_workers_take_at_most_memory_that_is_left(host):
    host(memory=4 * GIB)
    auto, _ = settled()
    assert str(auto) == 'workers ("auto"): 1, 3; memory is left for 3 workers'
    host(memory=GIB // 2)
    assert settled()[0].history == [1]


def test_memory_of_present_workers_ends_none_of_them(host, monkeypatch):
    auto = AutoWorkers(ChosenWorkers(), NO_LIMIT)
    run = Run(auto)
    monkeypatch.setattr(
        host_limits, "available_memory", lambda: (16 - run._workers) * GIB
    )
    run.take(20_000)
    assert auto.history == [1, 4, 9]


def test_workers_that_compute_are_limited_by_cores(host, monkeypatch):
    auto = AutoWorkers(ChosenWorkers(), NO_LIMIT)
    run = Run(auto)
    monkeypatch.setattr(process_usage, "read_runnable_s", lambda pid: run._busy_s)
    run.take(1000)
    assert auto.history == [1, 2]
    assert auto.reason == "they compute 100% of the time on 2 cores"


def test_streams_limit_workers(host):
    auto, _ = settled(Decision(3, "each of 3 streams has one worker"))
    assert str(auto) == 'workers ("auto"): 1, 3; each of 3 streams has one worker'


def test_nothing_is_measured_while_workers_start(host):
    auto = AutoWorkers(ChosenWorkers(), NO_LIMIT)
    run = Run(auto)
    run.starting = 10_000
    run.take(9000)
    assert auto.history == [1]
    run.take(2000)
    assert auto.history[:2] == [1, 4]


def test_other_processes_are_measured_anew(host, monkeypatch):
    auto = AutoWorkers(ChosenWorkers(), NO_LIMIT)
    run = Run(auto)
    run.take(40)
    worker = LocalWorkerStats(99, 0.0, 0.0, 0, 0)  # Of a scheduler that has just begun.
    monkeypatch.setattr(run, "usage", lambda: LocalStats((worker,), {}, {}))
    run.take(60)
    assert auto.history == [1]
    assert auto.reason == "nothing has been measured yet"


def test_settles_within_20_simulated_seconds(host):
    auto = AutoWorkers(ChosenWorkers(), NO_LIMIT)
    run = Run(auto)
    while auto.history[-1] < 32:
        run.take(1)
    assert run.now_ns < 20e9
