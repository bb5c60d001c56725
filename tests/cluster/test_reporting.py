"""What limits a pipeline on a cluster, and whether more actors would help."""

import collections
import re
import time

import numpy as np
import pytest
import ray
import ray.util.metrics

import gristmill
from gristmill import experimental
from gristmill._ray import progress
from gristmill.ray import RayWorkers

pytestmark = pytest.mark.usefixtures("cluster")
TIMED = experimental.DatasetOptions(
    execution_tracking_mode=experimental.ExecutionTrackingMode.STAGE_TIMING
)


def work(seconds):
    """Compute for so long, whatever else the machine has to do."""
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


def test_actors_that_are_slow_limit_and_more_would_help():
    report = report_of(loader(Decode(), RayWorkers(1)), 60)
    assert (report.limit, report.stage) == ("transform", "computation in actors")
    (change,) = report.untried
    assert change.text.endswith(" actors, not 1"), str(report)
    assert change.predicted > 1.5
    assert report.advice == ()
    (worker,) = report.workers
    assert worker.node == "127.0.0.1"
    assert worker.busy > 0.7


def test_a_slow_consumer_limits_and_more_actors_would_not_help():
    # Many outputs, so that the actors' first calls are a small part of their time.
    report = report_of(
        loader(Cheap(), RayWorkers(2)), 400, consume=lambda batch: work(4e-3)
    )
    assert (report.limit, report.stage) == ("consumer", None), str(report)
    (advice,) = report.advice
    assert "more actors would not help. 1 of the 2 would be enough." in advice.text
    assert advice.gain == 1
    # The first one waited for actors to start.
    assert report.outputs == 399


def test_large_batches_and_cheap_work_name_the_network():
    workers = RayWorkers(2, ahead=2)
    report = report_of(loader(Large(), workers, batch_size=2, worker_count=2), 30)
    assert report.limit == "transport", str(report)
    assert report.stage == "calls of actors and the network"
    (advice,) = report.advice
    assert "more of them would not help" in advice.text
    assert "8.39 MB for each output" in advice.text


def test_small_batches_want_more_of_them_in_a_call():
    report = report_of(loader(Cheap(), RayWorkers(1), batch_size=8), 300)
    assert report.limit == "transport", str(report)
    (advice,) = report.advice
    assert "more of them would not help" in advice.text
    (change,) = report.untried
    assert change.text.endswith("times as many batches_per_call")
    assert change.predicted > 1


def test_a_measured_chain_names_its_step_on_actors():
    ds = gristmill.MapDataset.range(100_000).map(Decode()).to_iter_dataset().batch(2)
    ds = ds.mp_prefetch(workers=RayWorkers(1), streams=1)
    report = ds.report(2.0)
    assert report.limit == "transform", str(report)
    assert "Decode" in report.stage
    assert report.untried[0].text.endswith(" actors, not 1")
    assert [worker.node for worker in report.workers] == ["127.0.0.1"]


def test_too_few_calls_are_said_to_tell_nothing():
    report = report_of(loader(Cheap(), RayWorkers(1), batch_size=64), 2)
    assert (report.limit, report.advice, report.untried) == ("unknown", (), ())


def test_ray_is_told_what_actors_do(monkeypatch):
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
    """The lines that the user is shown."""
    lines = []
    monkeypatch.setattr(progress.log, "show", lines.append)
    return lines


def test_lines_say_how_many_actors_have_started(monkeypatch, shown):
    monkeypatch.setattr(progress, "TELL_S", 0.0)
    # The cluster has room for four.
    iterator = iter(loader(Cheap(), RayWorkers(5), batch_size=8))
    line = re.compile(r"Ray: [1-4] of 5 actors have started, after \d+ s\.")
    # Actors of a test before may still be going, which are told of, too.
    while not any(map(line.fullmatch, shown)):
        next(iterator)


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


def test_who_waits_is_told_at_first_often_then_seldom(monkeypatch, shown, caplog):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    seen = progress.Progress(ray)

    def told(started, seconds):
        """What is shown while so many seconds pass."""
        shown.clear()
        for _ in range(seconds):
            clock.now += 1
            seen.look(started, 8)
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
