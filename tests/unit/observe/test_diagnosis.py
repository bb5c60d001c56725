"""What a report advises follows from what was measured, and from nothing else."""

import pytest

from gristmill._observe import diagnosis
from gristmill._observe.report import Report, Stage, WorkerLoad


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(diagnosis, "_cores", lambda: 2)


def report_of(stage, workers=0, seconds=1.0, outputs=100):
    """A run whose consumer always waits, and for nothing but one stage."""
    return Report(
        limit="unknown",
        stage=None,
        seconds=seconds,
        outputs=outputs,
        outputs_per_s=outputs / seconds,
        bytes_per_s=0.0,
        waited=1.0,
        p50_s=0.01,
        p95_s=0.01,
        p99_s=0.01,
        stages=(stage,),
        workers=tuple(
            WorkerLoad(pid=pid, busy=1.0, sending_s=0.0, elements=outputs)
            for pid in range(workers)
        ),
    )


def stage_of(cpu_share, threads=None, seconds=0.01):
    return Stage("Step", "transform", 1.0, seconds, cpu_share, 100, threads)


def advised(report):
    return [advice.text for advice in diagnosis.diagnose(report).advice]


def test_what_computes_is_advised_as_many_workers_as_cores():
    (text,) = advised(report_of(stage_of(1.0)))
    assert text == (
        "Step takes 100% of the time in this process: 2 workers should give about 2.0x."
    )
    (text,) = advised(report_of(stage_of(1.0), workers=2))
    assert text.startswith("What Step does has to become cheaper")


def test_what_waits_is_advised_more_workers_than_cores():
    (text,) = advised(report_of(stage_of(0.02), workers=2))
    assert text == (
        "Step takes most of the workers' time: 16 workers, not 2, should give about"
        " 8.0x."
    )


def test_what_half_waits_is_advised_what_keeps_the_cores_busy():
    (text,) = advised(report_of(stage_of(0.5)))
    assert "4 workers should give about 4.0x" in text


def test_threads_are_advised_where_some_can_be_had_and_only_there():
    assert not any("thread" in text for text in advised(report_of(stage_of(0.0))))
    threads, workers = advised(report_of(stage_of(0.0, threads=0)))
    assert "32 threads (ReadOptions.num_threads) should give about 32.0x" in threads
    assert "2 workers should give about 2.0x" in workers


def test_threads_that_wait_side_by_side_are_doubled_and_no_workers_advised():
    (text,) = advised(report_of(stage_of(0.0, threads=32, seconds=0.32)))
    assert "64 threads (ReadOptions.num_threads) should give about 2.0x" in text


def test_one_worker_in_place_of_many_threads_is_predicted_to_be_slower():
    report = report_of(stage_of(0.0, threads=32, seconds=0.32))
    assert diagnosis.predicted_gain(report, 1) == pytest.approx(1 / 32)


def test_a_cache_is_never_predicted_to_be_slower():
    fast = report_of(stage_of(1.0), workers=2, seconds=0.001)
    assert diagnosis.ready_gain(fast) == 1.0
