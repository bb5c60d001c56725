"""Tests that the advice in a report follows from its measurements alone."""

import dataclasses

import pytest

from gristmill._base.report import Report, Stage, WorkerLoad
from gristmill._observe import diagnosis


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(diagnosis, "count_cores", lambda: 2)


def report_of(stage, workers=0, seconds=1.0, outputs=100):
    """Return the report of a run whose consumer waits for this stage all the time."""
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


def untried(report):
    """Return the texts and predicted gains of changes that may help."""
    found = diagnosis.diagnose(report)
    assert found.advice == ()
    return [(change.text, round(change.predicted, 2)) for change in found.untried]


def test_computing_stage_suggests_one_worker_per_core():
    assert untried(report_of(stage_of(1.0))) == [("2 workers", 2.0)]
    assert untried(report_of(stage_of(1.0), workers=2)) == []


def test_waiting_stage_suggests_more_workers_than_cores():
    found = untried(report_of(stage_of(0.02), workers=2))
    assert found == [("16 workers, not 2", 8.0)]


def test_half_waiting_stage_suggests_workers_for_all_cores():
    assert untried(report_of(stage_of(0.5))) == [("4 workers", 4.0)]


def test_threads_are_suggested_only_if_supported():
    assert not any("thread" in text for text, _ in untried(report_of(stage_of(0.0))))
    assert untried(report_of(stage_of(0.0, threads=0))) == [
        ("32 threads (ReadOptions.num_threads), not 0", 32.0),
        ("2 workers", 2.0),
    ]


def test_waiting_threads_suggest_twice_the_threads():
    found = untried(report_of(stage_of(0.0, threads=32, seconds=0.32)))
    assert found == [("64 threads (ReadOptions.num_threads), not 32", 2.0)]


def test_limiting_consumer_needs_no_change():
    report = dataclasses.replace(report_of(stage_of(1.0)), waited=0.05)
    found = diagnosis.diagnose(report)
    assert (found.advice, found.untried) == ((diagnosis.NO_CHANGE,), ())


def tried(gains):
    """Return the advice in a report after its changes had these gains."""
    report = diagnosis.diagnose(report_of(stage_of(0.0, threads=0)))
    found = diagnosis.add_advice(report, list(zip(report.untried, gains, strict=True)))
    assert found.untried == ()
    return [(advice.text, advice.gain) for advice in found.advice]


def test_helpful_change_is_advised_with_its_gain():
    threads, workers = tried([1.5, 1.9])
    assert threads == ("2 workers gave 1.90x as many outputs a second.", 1.9)
    assert workers[0].startswith("32 threads (ReadOptions.num_threads), not 0 gave 1.5")
    assert [gain for _, gain in tried([1.02, 1.9])] == [1.9]


def test_changes_without_gain_are_not_advised():
    assert tried([1.02, 0.9]) == [
        (
            "Make Step faster: the best change tried, 32 threads"
            " (ReadOptions.num_threads), not 0, gave only 1.02x as many outputs a"
            " second.",
            1.0,
        )
    ]


def test_change_that_was_not_tried_stays_untried():
    report = diagnosis.diagnose(report_of(stage_of(0.0, threads=0)))
    found = diagnosis.add_advice(report, [])
    assert (found.untried, found.advice) == (report.untried, ())


def test_one_worker_instead_of_threads_predicts_slowdown():
    report = report_of(stage_of(0.0, threads=32, seconds=0.32))
    assert diagnosis.predicted_gain(report, 1) == pytest.approx(1 / 32)


def test_cache_is_never_predicted_to_be_slower():
    fast = report_of(stage_of(1.0), workers=2, seconds=0.001)
    assert diagnosis.ready_gain(fast) == 1.0


def test_cache_without_workers_gains_what_the_consumer_waits():
    report = report_of(stage_of(1.0))  # 10 ms for an output
    assert diagnosis.ready_gain(report) is None
    slow = dataclasses.replace(report, waited=0.75)
    assert diagnosis.ready_gain(slow) == pytest.approx(4)
    ready = dataclasses.replace(report, waited=0.0)
    assert diagnosis.ready_gain(ready) == 1.0
