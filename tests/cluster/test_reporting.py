"""Reports name the limit of a pipeline on a cluster, and whether more actors help."""

import collections
import re
import time

import numpy as np
import pytest
import ray
import ray.util.metrics

import gristmill
from gristmill import experimental
from gristmill._ray import start_progress
from gristmill.ray import RayWorkers

pytestmark = pytest.mark.usefixtures("cluster")
TIMED = experimental.DatasetOptions(
    execution_tracking_mode=experimental.ExecutionTrackingMode.STAGE_TIMING
)


def work(seconds):
    """Compute for `seconds` of CPU time, regardless of the machine's load."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Decode(gristmill.MapTransform):
    def map(self, number):
        work(20e-3)
        return np.full(100, number)


class Cheap(gristmill.MapTransform):
    def map(self, number):
        return number


class Large(gristmill.MapTransform):
    def map(self, number):
        return np.zeros(4 << 20, np.uint8)


def loader(step, workers, **options):
    return gristmill.load(
        range(100_000), transformations=[step], workers=workers, **options
    )


def report_of(made, outputs, consume=lambda batch: None):
    iterator = iter(made)
    for _, batch in zip(range(outputs), iterator, strict=False):
        consume(batch)
    return iterator.report()


def test_slow_actors_limit_and_more_would_help():
    report = report_of(loader(Decode(), RayWorkers(1)), 60)
    assert (report.limit, report.stage) == ("transform", "computation in actors")
    (change,) = report.untried
    assert change.text.endswith(" actors, not 1"), str(report)
    assert change.predicted > 1.5
    assert report.advice == ()
    (worker,) = report.workers
    assert worker.node == "127.0.0.1"
    assert worker.busy > 0.7


def test_slow_consumer_limits_and_more_actors_do_not_help():
    # Many outputs, so that the first calls of actors hardly count.
    report = report_of(
        loader(Cheap(), RayWorkers(2)), 400, consume=lambda batch: work(4e-3)
    )
    assert (report.limit, report.stage) == ("consumer", None), str(report)
    (advice,) = report.advice
    assert "more actors would not help. 1 of the 2 would be enough." in advice.text
    assert advice.gain == 1
    # The first output, which waited for actors to start, does not count.
    assert report.outputs == 399


def test_large_cheap_batches_name_the_network():
    workers = RayWorkers(2, ahead=2)
    report = report_of(loader(Large(), workers, batch_size=2, worker_count=2), 30)
    assert report.limit == "transport", str(report)
    assert report.stage == "calls of actors and the network"
    (advice,) = report.advice
    assert "more of them would not help" in advice.text
    assert "8.39 MB for each output" in advice.text


def test_small_batches_suggest_more_batches_per_call():
    report = report_of(loader(Cheap(), RayWorkers(1), batch_size=8), 300)
    assert report.limit == "transport", str(report)
    (advice,) = report.advice
    assert "more of them would not help" in advice.text
    (change,) = report.untried
    assert change.text.endswith("times as many batches_per_call")
    assert change.predicted > 1


def test_measured_chain_names_its_step_on_actors():
    ds = gristmill.MapDataset.range(100_000).map(Decode()).to_iter_dataset().batch(2)
    ds = ds.mp_prefetch(workers=RayWorkers(1), streams=1)
    report = ds.report(2.0)
    assert report.limit == "transform", str(report)
    assert "Decode" in report.stage
    assert report.untried[0].text.endswith(" actors, not 1")
    assert [worker.node for worker in report.workers] == ["127.0.0.1"]


def test_report_of_few_calls_has_no_limit():
    report = report_of(loader(Cheap(), RayWorkers(1), batch_size=64), 2)
    assert (report.limit, report.advice, report.untried) == ("unknown", (), ())


def test_actors_report_metrics_to_ray(monkeypatch):
    told = collections.defaultdict(float)

    def tell(self, value=1, tags=None):
        assert self.info["tag_keys"] == tuple(tags or ())
        told[self.info["name"]] += value

    monkeypatch.setattr(ray.util.metrics.Counter, "inc", tell)
    held = []
    monkeypatch.setattr(
        ray.util.metrics.Gauge, "set", lambda self, value: held.append(value)
    )
    made = iter(loader(Cheap(), RayWorkers(2), batch_size=8))
    outputs = 0
    while outputs < 100 or max(held) < 2:
        next(made)
        outputs += 1
    told_s = [told.pop(f"gristmill_{what}_s") for what in ("computing", "moving")]
    assert min(told_s) > 0
    assert told.pop("gristmill_receiving_s") > 0
    assert told["gristmill_calls"] >= 100
    assert told["gristmill_bytes"] >= 100 * 8 * 8
    assert max(held) == 2
    made.close()
    assert held[-1] == 0


@pytest.fixture
def shown(monkeypatch):
    """Collect the progress lines shown to the user."""
    lines = []
    monkeypatch.setattr(start_progress.log, "show", lines.append)
    return lines


def test_progress_lines_count_started_actors(monkeypatch, shown):
    monkeypatch.setattr(start_progress, "REPORT_S", 0.0)
    # The cluster has room for four actors.
    iterator = iter(loader(Cheap(), RayWorkers(5), batch_size=8))
    line = re.compile(r"Ray: [1-4] of 5 actors have started, after \d+ s\.")
    # Actors of an earlier test may still be ending, which is reported too.
    while not any(map(line.fullmatch, shown)):
        next(iterator)


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


def test_progress_is_reported_often_at_first_then_seldom(monkeypatch, shown, caplog):
    clock = Clock()
    monkeypatch.setattr(start_progress, "time", clock)
    seen = start_progress.StartProgress(ray)

    def told(started, seconds):
        """Return the lines shown in the next `seconds`."""
        shown.clear()
        for _ in range(seconds):
            clock.now += 1
            seen.update(started, 8)
        return shown

    assert told(0, 12) == []
    warned = "Waiting for Ray: none of 8 actors has started."
    assert [one.getMessage().startswith(warned) for one in caplog.records] == [True] * 2
    assert told(3, 33) == [
        "Ray: 3 of 8 actors have started, after 15 s.",
        "Ray: 3 of 8 actors have started, after 30 s.",
    ]
    assert told(8, 30) == ["Ray: all 8 actors have started, after 45 s."]
    assert told(7, 12) == [
        "Ray: 7 of 8 actors have started, after 5 s.",
        "Ray: 7 of 8 actors have started, after 10 s.",
    ]
