"""Tests the decisions about the number of workers on simulated workloads."""

import dataclasses
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from gristmill._engine.auto_workers import (
    Decision,
    Measurement,
    WorkerPlan,
    limit_by_cores,
)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A workload whose outputs take the same time.

    Attributes:
        work_s: The time of one output in a worker, if it has a core.
        computing: The share of that time in which it computes.
        use_s: The time that the consumer uses an output.
        cores: The cores of the machine.
        most_per_s: The outputs per second that a disk or a network allows.
    """

    work_s: float
    computing: float
    use_s: float
    cores: float = 4
    most_per_s: float = math.inf

    def rate(self, workers):
        compute_s = self.work_s * self.computing
        limits = [workers / self.work_s, self.most_per_s]
        limits.append(1 / self.use_s if self.use_s else math.inf)
        limits.append(self.cores / compute_s if compute_s else math.inf)
        return min(limits)

    def measure(self, workers, seconds=1.0):
        rate = self.rate(workers)
        has_spare_workers = self.use_s and rate == 1 / self.use_s
        busy_s = rate * self.work_s if has_spare_workers else workers
        computed_s = rate * self.work_s * self.computing
        # Work that waits for nothing else waits for a core.
        queued_s = 0.0
        if computed_s >= self.cores * 0.999:
            asleep_s = rate * self.work_s * (1 - self.computing)
            queued_s = max(0.0, busy_s - asleep_s - computed_s)
        waited_s = max(0.0, 1 - rate * self.use_s)
        return Measurement(
            workers,
            max(1, round(rate * seconds)),
            seconds,
            waited_s * seconds,
            busy_s * seconds,
            (computed_s + queued_s) * seconds,
        )

    def limits(self, found, most):
        return [Decision(most, "most"), limit_by_cores(found, self.cores)]


def numbers(plan, workload, workers=1, measurements=12, most=32):
    """Return the number of workers at each measurement."""
    found = []
    for _ in range(measurements):
        found.append(workers)
        measured = workload.measure(workers)
        workers = plan.decide(measured, workload.limits(measured, most)).workers
    return found


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Workload(0.02, 0.01, 0.004), [1, 4, 6, 6]),  # Sleeps more than it computes.
        (Workload(0.02, 1.0, 0.0), [1, 4, 4, 4]),  # Computes.
        (Workload(0.02, 0.5, 0.0), [1, 4, 8, 8]),  # Computes half of the time.
        (Workload(0.02, 0.0, 0.1), [1, 1, 1, 1]),  # The consumer is slow.
        (Workload(0.02, 0.0, 0.0), [1, 4, 16, 32, 32]),  # The consumer only waits.
        # A disk allows as much as 15 workers read.
        (Workload(0.02, 0.0, 0.0, most_per_s=750), [1, 4, 16, 32, 32, 16, 16]),
        # A disk allows as much as one worker reads.
        (Workload(0.02, 0.0, 0.0, most_per_s=50), [1, 4, 4, 1, 2, 2, 1, 1]),
    ],
)
def test_number_settles(workload, expected):
    found = numbers(WorkerPlan(), workload)
    assert found[: len(expected)] == expected
    assert set(found[len(expected) :]) <= {expected[-1]}


WORKLOADS = st.builds(
    Workload,
    work_s=st.floats(1e-3, 0.1),
    computing=st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.0]),
    use_s=st.sampled_from([0.0, 1e-3, 5e-3, 0.02, 0.1]),
    cores=st.sampled_from([1, 2, 3.5, 8, 64]),
    most_per_s=st.sampled_from([math.inf, 2e3, 500, 50]),
)


def best_rate(workload, most):
    return max(workload.rate(workers) for workers in range(1, most + 1))


@hypothesis.given(workload=WORKLOADS, most=st.integers(1, 64))
def test_settled_number_is_as_fast_as_best_fixed_one(workload, most):
    found = numbers(WorkerPlan(), workload, most=most, measurements=18)
    assert all(1 <= workers <= most for workers in found)
    assert workload.rate(found[-1]) >= 0.95 * best_rate(workload, most)


@hypothesis.given(workload=WORKLOADS)
def test_same_workload_leads_to_few_changes(workload):
    found = numbers(WorkerPlan(), workload, measurements=1000)
    changes = [n for n in range(1, 1000) if found[n] != found[n - 1]]
    assert len([n for n in changes if n > 500]) <= 6
    assert len(changes) <= 50


@hypothesis.given(first=WORKLOADS, second=WORKLOADS, rest=st.integers(1, 30))
def test_other_workload_is_followed(first, second, rest):
    plan = WorkerPlan()
    second = dataclasses.replace(second, cores=first.cores)
    workers = numbers(plan, first, measurements=rest)[-1]
    found = numbers(plan, second, workers, measurements=45)
    fast_enough = 0.95 * best_rate(second, 32)
    assert sum(second.rate(each) >= fast_enough for each in found[-20:]) >= 10


@hypothesis.given(workload=WORKLOADS)
def test_consumer_that_does_not_wait_keeps_one_worker(workload):
    workload = dataclasses.replace(workload, use_s=1.2 / workload.rate(1))
    assert set(numbers(WorkerPlan(), workload)) == {1}


def test_one_strange_measurement_at_rest_changes_nothing():
    plan, workload = WorkerPlan(), Workload(0.02, 0.0, 0.004)
    workers = numbers(plan, workload)[-1]
    pause = Measurement(workers, 1, 60.0, 0.0, 0.02, 0.0)
    assert plan.decide(pause, []).workers == workers
    assert set(numbers(plan, workload, workers)) == {workers}


def test_reason_of_limit_is_named():
    found = Workload(0.02, 0.0, 0.0).measure(1)
    decision = WorkerPlan().decide(found, [Decision(3, "memory"), Decision(9, "cores")])
    assert decision == (3, "memory")
