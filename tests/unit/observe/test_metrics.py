"""Metrics go to OpenTelemetry, and to programs that log dictionaries of numbers."""

import os
import re
import types

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import gristmill as grain
from gristmill import monitoring
from gristmill._base import latest_iterators
from support.places import ROOT

MIXTURE = {"web": grain.MapDataset.range(4), "code": grain.MapDataset.range(2)}


@pytest.fixture
def collected(monkeypatch):
    """Record metrics, and return a function that collects them by OpenTelemetry."""
    monkeypatch.setattr(monitoring, "_telemetry", [])
    reader = InMemoryMetricReader()
    monitoring.start_opentelemetry(MeterProvider([reader]))

    def collect():
        (resource,) = reader.get_metrics_data().resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "gristmill"
        return {metric.name: metric for metric in scope.metrics}

    return collect


def values_of(metric):
    """Return the value of each attribute."""
    values = {}
    for point in metric.data.data_points:
        (attribute,) = point.attributes.values()
        values[attribute] = point.value
    return values


def test_opentelemetry_gets_calls_and_reads_of_a_chain(collected):
    ds = grain.MapDataset.source([b"abc"] * 6).to_iter_dataset().batch(2)
    assert len(list(ds)) == 3
    metrics = collected()
    assert values_of(metrics["gristmill.next.calls"]) == {"dataset": 3}
    (duration,) = values_of(metrics["gristmill.next.duration"]).values()
    assert 0 < duration < 60
    assert metrics["gristmill.next.duration"].unit == "s"
    assert metrics["gristmill.next.calls"].data.is_monotonic
    assert values_of(metrics["gristmill.read.elements"]) == {"list": 6}
    assert values_of(metrics["gristmill.read.bytes"])["list"] >= 18
    assert len(list(ds)) == 3
    assert values_of(collected()["gristmill.next.calls"]) == {"dataset": 6}


def test_opentelemetry_gets_calls_of_a_loader(collected):
    loader = grain.load(range(6), batch_size=2, num_epochs=1)
    assert len(list(loader)) == 3
    assert values_of(collected()["gristmill.next.calls"]) == {"loader": 3}


def test_opentelemetry_gets_the_last_counts_of_consumed(collected):
    iterator = iter(grain.MapDataset.mix(MIXTURE).batch(2, batch_fn=list))
    next(iterator)
    iterator.consumed()
    metrics = collected()
    elements = values_of(metrics["gristmill.consumed.elements"])
    assert elements == {"web": 1, "code": 1}
    assert values_of(metrics["gristmill.consumed.epochs"]) == {"web": 0.25, "code": 0.5}


def test_second_start_of_opentelemetry_does_nothing(collected):
    monitoring.start_opentelemetry(MeterProvider([reader := InMemoryMetricReader()]))
    list(grain.load(range(6), batch_size=2, num_epochs=1))
    assert values_of(collected()["gristmill.next.calls"]) == {"loader": 3}
    assert reader.get_metrics_data() is None


def test_fork_gives_opentelemetry_no_numbers_of_its_parent(collected):
    ds = grain.MapDataset.source([b"abc"] * 6).to_iter_dataset()
    list(ds)
    (numbers,) = monitoring._telemetry
    # As if another thread recorded at the time of the fork.
    with numbers._lock:
        if (child := os.fork()) == 0:
            list(ds)
            shown = list(numbers._observe(tuple, "gristmill.next.calls", None))
            os._exit(bool(shown) or monitoring.is_on())
    assert os.waitpid(child, 0) == (child, 0)
    assert values_of(collected()["gristmill.next.calls"]) == {"dataset": 6}


def test_loader_metrics_are_those_of_the_latest_iterator():
    loader = grain.load(range(6), batch_size=2, num_epochs=1)
    assert loader.metrics() == {}
    iterator = iter(loader)
    next(iterator)
    metrics = loader.metrics()
    assert metrics.keys() == {
        "data/outputs_per_s",
        "data/bytes_per_s",
        "data/waited",
        "data/p50_s",
        "data/p95_s",
        "data/p99_s",
    }
    assert all(type(value) is float for value in metrics.values())
    assert metrics["data/outputs_per_s"] > 0
    del iterator
    assert loader.metrics() == {}


def test_torch_loader_metrics_are_those_of_the_latest_iterator():
    from gristmill.torch import DataLoader

    loader = DataLoader(range(6), batch_size=2)
    assert loader.metrics() == {}
    for _ in loader:
        assert loader.metrics()["data/outputs_per_s"] > 0


@pytest.mark.parametrize("face", ["grain", "torch"])
def test_metrics_of_loaders_that_compare_equal_are_their_own(face):
    from gristmill.torch import DataLoader

    class Equal(grain.DataLoader if face == "grain" else DataLoader):
        def __eq__(self, other):
            return True

        __hash__ = None

    def make():
        if face == "torch":
            return Equal(range(6))
        sampler = grain.samplers.SequentialSampler(6)
        return Equal(data_source=range(6), sampler=sampler)

    loader, other = make(), make()
    iterator = iter(loader)
    next(iterator)
    assert loader.metrics()["data/outputs_per_s"] > 0
    assert other.metrics() == {}
    key, latest = id(loader), latest_iterators._latest
    assert key in latest
    del loader, iterator
    assert key not in latest


@pytest.mark.parametrize("logger", ["TensorBoard", "Weights & Biases"])
def test_lines_of_the_docs_log_metrics(logger):
    page = (ROOT / "docs" / "seeing-it-work.md").read_text()
    (line,) = re.findall(rf"^\| {logger} \| `(.*)` \|$", page, re.MULTILINE)
    logged = {}
    # They take what SummaryWriter.add_scalar and wandb.log take.
    writer = types.SimpleNamespace(
        add_scalar=lambda tag, scalar_value, global_step: logged.update(
            {(tag, global_step): scalar_value}
        )
    )
    wandb = types.SimpleNamespace(
        log=lambda data, step: logged.update(
            {(name, step): value for name, value in data.items()}
        )
    )
    loader = grain.load(range(6), batch_size=2, num_epochs=1)
    for step, _ in enumerate(loader):
        exec(line, {"loader": loader, "step": step, "writer": writer, "wandb": wandb})
    assert len(logged) == 3 * 6
    assert logged["data/outputs_per_s", 2] > 0


def test_report_metrics_have_workers_and_sources():
    from gristmill._base.report import Report, WorkerLoad
    from gristmill._base.source_counts import SourceCount

    report = Report(
        limit="read",
        stage=None,
        seconds=2.0,
        outputs=6,
        outputs_per_s=3.0,
        bytes_per_s=0.0,
        waited=0.5,
        p50_s=0.1,
        p95_s=0.2,
        p99_s=0.3,
        workers=(WorkerLoad(1, 0.5, 0.0, 3), WorkerLoad(2, 1.0, 0.0, 3)),
        sources=(("web", SourceCount(elements=6, tokens=None, epochs=1.5)),),
    )
    assert report.metrics() == {
        "data/outputs_per_s": 3.0,
        "data/bytes_per_s": 0.0,
        "data/waited": 0.5,
        "data/p50_s": 0.1,
        "data/p95_s": 0.2,
        "data/p99_s": 0.3,
        "data/workers": 2,
        "data/workers_busy": 0.75,
        "data/web/elements": 6,
        "data/web/epochs": 1.5,
    }
