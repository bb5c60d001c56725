"""Tests that reports name the bottleneck. Most tests plant one."""

import itertools
import threading
import time
from typing import ClassVar

import jax
import numpy as np
import pytest

import gristmill as grain
from gristmill import experimental
from gristmill._base.report import Report, Stage
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator
from gristmill._observe import measured_copy, reporting, sampling, timed_run

SECONDS = 1.0
WORKERS = grain.MultiprocessingOptions(num_workers=2)
NO_THREADS = grain.ReadOptions(num_threads=0)
TIMED = experimental.DatasetOptions(
    execution_tracking_mode=experimental.ExecutionTrackingMode.STAGE_TIMING
)
# Many Python objects, which are cheap to make and slow to move between processes.
OBJECTS = [{"name": f"object {i}", "size": i} for i in range(5000)]


def work(seconds):
    """Compute for this much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class WaitingSource:
    """Waits before each record, like a slow disk."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        threading.Event().wait(self.seconds)
        return index


class WorkingSource(WaitingSource):
    """Computes for a while before each record."""

    def __getitem__(self, index):
        work(self.seconds)
        return index


def decode(x):
    work(2e-3)
    return np.full(100, x)


def have_objects(x):
    return OBJECTS


def slow_batch(elements):
    work(10e-3)
    return np.array(elements)


@pytest.fixture
def never_measured(monkeypatch):
    """Disable periodic measurement of blocks."""
    monkeypatch.setattr(sampling, "FIRST_SAMPLE_NS", 10**15)


@pytest.fixture
def always_measured(monkeypatch):
    """Measure every block."""
    monkeypatch.setattr(sampling, "FIRST_SAMPLE_NS", 0)
    monkeypatch.setattr(sampling, "SAMPLE_INTERVAL_NS", 0)


def stage_of(report):
    (stage,) = [stage for stage in report.stages if stage.name == report.stage]
    return stage


def test_slow_read_is_the_limit():
    source = grain.MapDataset.source(WaitingSource(5e-3))
    ds = source.map(lambda x: x + 1).to_iter_dataset(NO_THREADS).batch(8)
    report = ds.report(SECONDS)
    assert report.limit == "read", str(report)
    assert "WaitingSource" in report.stage
    assert stage_of(report).cpu_share < 0.5
    assert "num_threads" in report.untried[0].text
    assert report.untried[0].predicted > 4
    assert report.advice == ()


def test_slow_decode_is_the_limit():
    ds = grain.MapDataset.range(100_000).map(decode).to_iter_dataset(NO_THREADS)
    report = ds.batch(8).report(SECONDS)
    assert report.limit == "transform", str(report)
    assert "decode" in report.stage
    assert stage_of(report).share > 0.8
    assert report.waited > 0.9


def test_slow_decode_in_threads_is_the_limit():
    ds = grain.MapDataset.range(100_000).map(decode).to_iter_dataset().batch(8)
    report = ds.report(SECONDS)
    assert report.limit == "transform", str(report)
    assert "decode" in report.stage
    assert not [c for c in report.untried if "threads" in c.text], str(report)


def test_slow_batch_is_the_limit():
    ds = grain.MapDataset.range(100_000).map(lambda x: x + 1).to_iter_dataset()
    report = ds.batch(8, batch_fn=slow_batch).report(SECONDS)
    assert report.limit == "batch", str(report)
    assert report.stage.startswith("BatchDatasetIterator")


def test_slow_transport_is_the_limit():
    ds = grain.MapDataset.range(100_000).map(have_objects).to_iter_dataset()
    for _ in range(3):  # Workers without CPU time look like slow steps.
        report = ds.mp_prefetch(WORKERS).report(SECONDS)
        if report.limit == "transport":
            break
    assert report.limit == "transport", str(report)
    assert len(report.workers) == 2
    assert any("num_workers=0" in change.text for change in report.untried)
    assert any("smaller dtypes" in note.lower() for note in report.notes)


def test_slow_decode_in_workers_is_the_limit():
    ds = grain.MapDataset.range(100_000).map(decode).to_iter_dataset(NO_THREADS)
    for _ in range(3):  # Workers without CPU time look like slow transport.
        report = ds.batch(8).mp_prefetch(WORKERS).report(SECONDS)
        if report.limit == "transform":
            break
    assert report.limit == "transform", str(report)
    assert "decode" in report.stage
    assert all(worker.elements > 0 for worker in report.workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_slow_consumer_is_the_limit(workers):
    ds = grain.MapDataset.range(100_000).map(lambda x: x + 1).to_iter_dataset()
    ds = ds.batch(8).mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    report = ds.report(SECONDS, consume=lambda batch: work(0.1))
    assert report.limit == "consumer", str(report)
    assert report.stage is None
    assert report.waited < 0.1
    assert report.advice[0].gain == 1


def test_equal_stages_are_balanced():
    source = grain.MapDataset.source(WorkingSource(2e-3)).map(decode)
    ds = source.to_iter_dataset(NO_THREADS).batch(5, batch_fn=slow_batch)
    report = ds.report(2 * SECONDS)
    assert report.limit == "balanced", str(report)
    assert report.stage is None


def test_iterator_reports_without_stage_timing(always_measured):
    ds = grain.MapDataset.range(100_000).map(decode).to_iter_dataset(NO_THREADS)
    iterator = iter(ds.batch(8))
    for _ in zip(range(20), iterator, strict=False):
        pass
    report = iterator.report()
    assert report.limit == "transform", str(report)
    assert "decode" in report.stage
    assert report.outputs == 20
    assert report.p50_s <= report.p95_s <= report.p99_s
    assert report.p50_s > 10e-3
    assert any("not measured separately" in note for note in report.notes)


def test_iterator_report_names_slow_consumer():
    ds = grain.MapDataset.range(100_000).to_iter_dataset(NO_THREADS)
    iterator = iter(ds.batch(8))
    for _ in zip(range(20), iterator, strict=False):
        work(50e-3)  # Long, so that delays of `next` by other programs do not matter.
    report = iterator.report()
    assert report.limit == "consumer", str(report)
    assert report.outputs_per_s < 25


def test_measured_iterator_reports_single_steps():
    ds = grain.MapDataset.range(100_000).to_iter_dataset().map(decode)
    ds = ds.batch(8).pipe(experimental.WithOptionsIterDataset, TIMED)
    iterator = iter(ds)
    for _ in zip(range(20), iterator, strict=False):
        pass
    report = iterator.report()
    assert report.limit == "transform", str(report)
    assert "decode" in report.stage
    assert not report.notes


class Clock:
    """Replaces `time`: wall time is FACTOR times the CPU time of this thread."""

    FACTOR = 4

    def perf_counter(self):
        return time.thread_time() * self.FACTOR

    def __getattr__(self, name):
        return getattr(time, name)


def test_rate_counts_time_of_other_programs(monkeypatch):
    ds = grain.MapDataset.range(100_000).map(decode).to_iter_dataset(NO_THREADS)
    monkeypatch.setattr(timed_run, "time", Clock())
    took = timed_run.run_for(iter(ds), 0.4, None, lambda iterator: iterator.close())
    # An element takes 2 ms of CPU time, which is 8 ms by this clock.
    assert took.outputs / took.seconds == took.rate < 1000 / 8
    assert min(took.waits_s) >= 8e-3
    assert took.waited == 1.0


def test_rate_counts_untimed_short_calls():
    iterator = iter(range(1000))
    seen = []
    took = timed_run.run_for(iterator, 60.0, seen.append, lambda _: None)
    assert seen == list(range(1000))
    assert took.outputs == 999
    assert len(took.waits_s) < 999


def test_report_notes_time_of_other_programs():
    chain, measurement = measured_copy.copy_measured(
        grain.MapDataset.range(9).to_iter_dataset()
    )
    list(iter(chain))
    measurement.others_ns = 10**12
    report = reporting._with_nodes(Report(**NOTHING), measurement)
    assert report.notes == (
        "Other threads and programs used the processor for 100% of the time. The rate"
        " includes that time; the times of stages do not.",
    )
    measurement.others_ns = 0
    assert reporting._with_nodes(Report(**NOTHING), measurement).notes == ()


NOTHING = dict.fromkeys(
    ("outputs", "seconds", "outputs_per_s", "bytes_per_s", "waited"), 0.0
) | {"limit": "unknown", "stage": None, "p50_s": 0.0, "p95_s": 0.0, "p99_s": 0.0}


def test_stage_too_short_to_measure_shows_less_than():
    stages = (Stage("a", "read", 0.0, 0.0, 1.0, 9), Stage("b", "read", 1, 1e-6, 1.0, 9))
    lines = str(Report(**NOTHING | {"stages": stages})).split("\n")
    assert "<0.1us" in lines[-2]
    assert "1.00us" in lines[-1]


def test_unmeasured_size_is_left_out():
    iterator = iter(grain.load(np.zeros((1000, 100)), batch_size=8))
    for _ in zip(range(10), iterator, strict=False):
        pass
    rate = str(iterator.report()).split("\n")[1]
    assert rate.startswith("10 outputs in ")
    assert rate.endswith("/s")
    assert "bytes" not in rate


def test_only_some_fast_calls_are_timed(never_measured):
    iterator = iter(grain.MapDataset.range(200_000).to_iter_dataset())
    assert sum(1 for _ in iterator) == 200_000
    report = iterator.report()
    assert 1024 <= report.outputs < 1200
    assert any("Only some calls" in note for note in report.notes)


def test_timed_iterator_keeps_its_class_and_elements():
    ds = grain.MapDataset.range(20).to_iter_dataset().batch(4)
    iterator = iter(ds)
    assert type(iterator).__name__ == "BatchDatasetIterator"
    assert str(iterator) == "BatchDatasetIterator(batch_size=4, drop_remainder=False)"
    taken = [batch.tolist() for batch in iterator]
    assert taken == [list(range(i, i + 4)) for i in range(0, 20, 4)]


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_report_names_slow_consumer(workers):
    loader = grain.load(list(range(1000)), batch_size=2, worker_count=workers)
    iterator = iter(loader)
    next(iterator)
    for _ in zip(range(20), iterator, strict=False):
        work(50e-3)
    report = iterator.report()
    assert (
        report.outputs == 21 - workers
    )  # Excludes the output during which workers start.
    assert report.outputs_per_s < 25
    assert report.limit == "consumer", str(report)


def test_slow_loader_report_shows_waiting():
    loader = grain.load(
        WorkingSource(2e-3), batch_size=2, read_options=NO_THREADS, num_epochs=1
    )
    iterator = iter(loader)
    for _ in zip(range(20), iterator, strict=False):
        pass
    report = iterator.report()
    assert (report.limit, report.outputs) == ("read", 20)
    assert report.waited > 0.9
    assert report.p50_s > 3e-3


def test_part_of_a_chain_has_no_report():
    iterator = iter(grain.MapDataset.range(20).to_iter_dataset().batch(4))
    with pytest.raises(ValueError, match="part of another iterator's chain"):
        iterator._parent.report()


def test_seconds_must_be_positive():
    with pytest.raises(ValueError, match=r"seconds must be .*, got 0"):
        grain.MapDataset.range(5).to_iter_dataset().report(0)


def test_too_little_data_has_unknown_limit():
    report = grain.MapDataset.range(1).to_iter_dataset().report(SECONDS)
    assert (report.limit, report.outputs, report.stage) == ("unknown", 0, None)
    assert str(report).startswith("Limit: unknown")


def test_report_text_has_expected_lines():
    ds = grain.MapDataset.range(50).map(decode).to_iter_dataset(NO_THREADS).batch(8)
    report = ds.report(SECONDS)
    lines = str(report).split("\n")
    assert lines[0].startswith("Limit: transform, MapMapDataset(transform=decode")
    assert "The consumer waited" in lines[2]
    assert not any(line.startswith("Advice: ") for line in lines)
    assert str(report) == repr(report)


def test_hostile_names_add_no_lines():
    source = Named("x\nAdvice: forged\ud800")
    text = str(report := grain.load(source, batch_size=8).report(SECONDS))
    assert "read: x Advice: forged " in text
    assert not any(line.startswith("Advice: forged") for line in text.split("\n"))
    text.encode()
    report._repr_html_().encode()


class Named(WaitingSource):
    """A source with the given repr."""

    def __init__(self, name):
        super().__init__(0.0)
        self.name = name

    def __repr__(self):
        return self.name


class Annotation:
    """Replaces TraceAnnotation of jax.profiler."""

    named: ClassVar[list] = []

    def __init__(self, name, **_):
        self.named.append(name)

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass

    @staticmethod
    def is_enabled():
        return True


def test_calls_are_named_in_jax_traces(monkeypatch):
    class Mine(grain.DatasetIterator):
        def __next__(self):
            return 1

        def get_state(self):
            return {}

        def set_state(self, state):
            pass

    class Ones(grain.IterDataset):
        def __iter__(self):
            return Mine()

    monkeypatch.setattr(jax.profiler, "TraceAnnotation", Annotation)
    iterator = iter(Ones())
    assert [next(iterator), next(iterator)] == [1, 1]
    assert Annotation.named == ["Mine.__next__"] * 2


def test_timed_iterator_in_c_keeps_its_class():
    iterator = iter(grain.MapDataset.range(9).to_iter_dataset())
    assert next(iterator) == 0
    assert type(iterator) is PrefetchDatasetIterator
    assert iterator.report().outputs == 1


def test_stretch_begun_by_another_thread_keeps_attributes():
    iterator = iter(grain.MapDataset.range(900).to_iter_dataset().batch(2))
    watch, own_class = iterator._watch, iterator._watch._own_class
    assert type(iterator) is not own_class
    watch._pause(iterator)
    assert type(iterator) is own_class
    attributes = iterator.__dict__
    thread = threading.Thread(target=watch.start, args=(iterator,))
    thread.start()
    thread.join()
    assert type(iterator) is not own_class
    assert iterator.__dict__ is attributes


def test_measured_block_restarts_call_timing(never_measured):
    iterator = iter(grain.MapDataset.range(300_000).map(float).to_iter_dataset())
    blocks, watch = iterator.meter, iterator._watch
    taken = list(itertools.islice(iterator, 100_000))
    assert blocks.measured_elements == 0
    assert watch.outputs < 1200
    blocks.due_ns = watch._due_ns = 0
    taken += itertools.islice(iterator, 100_000)
    assert taken == list(range(200_000))
    assert 0 < blocks.measured_elements <= 512
    assert 2000 < watch.outputs < 2400
