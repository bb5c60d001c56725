"""Tests that reports of loaders name the slowest stage, also in workers."""

import dataclasses
import itertools
import json
import random

import numpy as np
import pytest

import gristmill as grain
from gristmill._base.report import Change, Check, Report
from gristmill._engine import stage_times
from gristmill._hot import run as hot_run
from gristmill._observe import verification
from gristmill._observe.timed_run import RunTimes

NO_THREADS = grain.ReadOptions(num_threads=0)
SECONDS = 0.1


def work(rounds):
    """Compute for a time proportional to `rounds`."""
    return sum(range(rounds * 1000))


class Slow(grain.transforms.Map):
    def map(self, element):
        work(50)
        return element


class VerySlow(grain.transforms.Map):
    def map(self, element):
        work(500)
        return element


class Fast(grain.transforms.Map):
    def map(self, element):
        return element


class FastSplit(grain.experimental.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element):
        return [element, element]


class SlowFilter(grain.transforms.Filter):
    def filter(self, element):
        work(50)
        return True


class SlowSource:
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        work(50)
        return index


class SlowBlocks(grain.transforms.BlockMap):
    block_size = 4

    def block_map(self, elements):
        work(200)
        return elements


def slow_batch(elements):
    work(500)
    return np.array(elements)


NUMBERS = list(range(10_000))
SLOW = {
    "read": (SlowSource(), [Fast()], "SlowSource"),
    "map": (NUMBERS, [Fast(), Slow()], "Slow"),
    "filter": (NUMBERS, [SlowFilter(), Fast()], "SlowFilter"),
    "several at a time": (NUMBERS, [SlowBlocks(), Fast()], "SlowBlocks"),
    "records": (NUMBERS, [Slow(), FastSplit()], "Slow"),
    "batch": (NUMBERS, [Fast(), grain.transforms.Batch(4, batch_fn=slow_batch)], None),
}
KINDS = {"read": "read", "batch": "batch"}


def loader_of(source, operations, workers, **options):
    if not isinstance(operations[-1], grain.transforms.Batch):
        operations = [*operations, grain.transforms.Batch(4)]
    return grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.SequentialSampler(len(source)),
        operations=operations,
        worker_count=workers,
        read_options=NO_THREADS,
        **options,
    )


def taken(iterator, count):
    return list(itertools.islice(iterator, count))


def slowest(report):
    return max(report.stages, key=lambda stage: stage.share)


def verified(ask, text):
    """Return a report whose check `text` compares enough outputs.

    `ask` gets the duration of each run.  On a busy machine, short runs have too few
    outputs.
    """
    for seconds in (5 * SECONDS, 20 * SECONDS, 80 * SECONDS):
        report = ask(seconds)
        if {check.text: check.found for check in report.checks}.get(text) is not None:
            break
    return report


@pytest.mark.parametrize(
    ("slow", "workers"), [*itertools.product(SLOW, [0]), ("map", 2)]
)
def test_report_names_the_slowest_stage(slow, workers, monkeypatch):
    # Measure each output, so that a pause of the process is a small part of the times.
    monkeypatch.setattr(stage_times, "PAUSE_NS", 0)
    source, operations, name = SLOW[slow]
    iterator = iter(loader_of(source, operations, workers))
    taken(iterator, 60)
    report = iterator.report()
    iterator.close()
    stage = slowest(report)
    assert stage.kind == KINDS.get(slow, "transform"), str(report)
    assert name is None or name in stage.name
    assert len(report.workers) == workers
    if not workers:  # Workers without CPU time look like slow transport.
        assert stage.share > 0.5
        assert (report.limit, report.stage) == (stage.kind, stage.name)


def test_fast_calls_are_timed_in_intervals():
    iterator = iter(grain.load(NUMBERS, num_epochs=1))
    taken(iterator, 2000)
    report = iterator.report()
    assert 1024 <= report.outputs < 1200
    assert "Only some calls of next() were timed." in report.notes
    taken(iterator, 2000)
    assert 2048 <= iterator.report().outputs < 2400
    iterator._watch.calls_until_timed = 1
    assert taken(iterator, 200) == NUMBERS[4000:4200]
    assert 2200 <= iterator.report().outputs < 2600
    assert type(iterator).__name__ == "DataLoaderIterator"


def test_report_includes_workers_that_have_ended():
    iterator = iter(loader_of(NUMBERS[:80], [Slow()], 2))
    assert len(taken(iterator, 100)) == 20
    before = iterator.report()
    iterator.close()
    after = iterator.report()
    assert sum(worker.elements for worker in after.workers) == 20
    assert slowest(after).name == slowest(before).name == "Slow"
    assert all(0 < worker.busy <= 1 for worker in after.workers)


def test_chain_report_includes_busy_time_of_workers():
    ds = grain.MapDataset.range(80).map(lambda x: work(50)).to_iter_dataset()
    ds = ds.batch(4).mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    iterator = iter(ds)
    assert len(list(iterator)) == 20
    report = iterator.report()
    assert sum(worker.elements for worker in report.workers) == 20
    assert slowest(report).name == "the chain in workers"
    assert any("STAGE_TIMING" in note for note in report.notes)


@pytest.mark.parametrize("workers", [0, 1])
def test_verify_tries_one_more_worker_and_keeps_position(workers):
    iterator = iter(loader_of(NUMBERS, [Slow()], workers))
    first = taken(iterator, 10)
    state = iterator.get_state()
    one_more = f"one more worker ({workers + 1})"
    report = verified(lambda seconds: iterator.report(True, seconds), one_more)
    assert iterator.get_state() == state
    checks = {check.text: check for check in report.checks}
    assert checks[one_more].found > 0
    # Without workers this depends on how long the consumer took.
    assert workers == 0 or "outputs from a cache" in checks
    assert str(report).count("\nCheck: ") == len(checks)
    follows = taken(iterator, 2)
    iterator.close()
    assert [b.tolist() for b in first + follows] == [
        list(range(i, i + 4)) for i in range(0, 48, 4)
    ]


class Drawn(grain.transforms.Map):
    """Draws from the global generators."""

    def map(self, element):
        return element + random.random() + np.random.random()  # noqa: NPY002


@pytest.mark.parametrize(
    "ask",
    [
        lambda loader, iterator: iterator.report(verify=True, seconds=0.02),
        lambda loader, iterator: loader.report(seconds=0.02),
        lambda loader, iterator: CHAIN.report(seconds=0.02),
    ],
    ids=["iterator", "loader", "chain"],
)
def test_report_does_not_change_global_generators(ask):
    loader = loader_of(NUMBERS, [Drawn()], 0)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    iterator = iter(loader)
    taken(iterator, 3)
    drawn = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    ask(loader, iterator)
    assert drawn == (
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
    )


CHAIN = grain.MapDataset.range(1000).map(Drawn()).to_iter_dataset(NO_THREADS)


class FailsAt(grain.transforms.Map):
    def map(self, element):
        if element == 90:
            raise ValueError("bad record\nof two lines")
        return element


def test_error_during_verify_skips_only_the_checks():
    iterator = iter(loader_of(NUMBERS, [FailsAt()], 0))
    taken(iterator, 10)
    report = iterator.report(verify=True, seconds=SECONDS)
    assert (report.outputs, report.checks) == (10, ())
    (told,) = (note for note in report.notes if note.startswith("Not tried: "))
    assert told == "Not tried: ValueError: bad record"
    assert next(iterator).tolist() == [40, 41, 42, 43]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_invalid_seconds_are_refused(seconds):
    loader = loader_of(NUMBERS, [Fast()], 0)
    for ask in (loader, CHAIN):
        with pytest.raises(ValueError, match=f"seconds must be .*, got {seconds}"):
            ask.report(seconds)
    iterator = iter(loader)
    taken(iterator, 3)
    with pytest.raises(ValueError, match=f"seconds must be .*, got {seconds}"):
        iterator.report(verify=True, seconds=seconds)


CHANGES = (
    Change("2 workers", 2.0, workers=2),
    Change("32 threads", 8.0, threads=32),
    Change("8 actors", 3.0),
)


@pytest.mark.parametrize(
    ("of_threads", "of_workers", "advice"),
    [
        (102, 50, ["faster: the best change tried, 32 threads,"]),
        (150, 190, ["2 workers gave 1.90x", "32 threads gave 1.50x"]),
    ],
)
def test_advice_follows_measured_gains(monkeypatch, of_threads, of_workers, advice):
    def tried(trial, more, seconds, consume, kept=None, threads=None):
        outputs = {2: of_workers, 1: 90, 0: 100}[more]
        return RunTimes([0.01], 0.0, 0, of_threads if threads else outputs, 1.0)

    monkeypatch.setattr(verification, "_run_trial", tried)
    loader = loader_of(NUMBERS, [Fast()], 0)
    report = loader.report(SECONDS)
    report = dataclasses.replace(report, limit="read", untried=CHANGES)
    found = verification.verify_report(report, loader._trial(), SECONDS, None)
    checks = [(check.text, check.predicted, check.found) for check in found.checks]
    assert checks[1:] == [
        ("2 workers", 2.0, of_workers / 100),
        ("32 threads", 8.0, of_threads / 100),
    ]
    assert found.untried == CHANGES[2:]
    assert len(found.advice) == len(advice)
    for each, text in zip(found.advice, advice, strict=True):
        assert text in each.text


def test_trial_with_threads_reads_from_same_position():
    ds = grain.MapDataset.range(100).map(float).to_iter_dataset(NO_THREADS)
    iterator = iter(ds.batch(4))
    taken(iterator, 3)
    opened = verification.ChainTrial(ds.batch(4), iterator).open(0, True, threads=32)
    assert opened._parent._node._read_options == grain.ReadOptions(32, 500)
    assert next(opened).tolist() == [12, 13, 14, 15]
    opened.close()
    loader = loader_of(NUMBERS, [Fast()], 0)
    iterator = iter(loader)
    taken(iterator, 3)
    opened = iterator._trial().open(0, True, threads=32)
    assert opened._reading_threads == 32
    assert next(opened).tolist() == [12, 13, 14, 15]
    opened.close()
    assert loader._read_options == NO_THREADS


def test_outputs_from_cache_are_faster_than_computed():
    # A batch computes for 20 ms, so that a busy machine leaves the cache ahead.
    loader = loader_of(NUMBERS, [VerySlow()], 1)
    text = "outputs from a cache"
    report = verified(lambda seconds: loader.report(seconds, verify=True), text)
    cached = report.checks[0]
    assert cached.text == text
    assert cached.predicted > 3
    assert cached.found > 3


def test_dataset_is_verified_from_its_beginning():
    ds = grain.MapDataset.source(NUMBERS).map(work_on).to_iter_dataset(NO_THREADS)
    ds = ds.batch(4)
    iterator = iter(ds)
    taken(iterator, 3)
    state = iterator.get_state()
    texts = [check.text for check in iterator.report(True, SECONDS).checks]
    # A pause between two calls would add the check of outputs from a cache.
    assert "one more worker (1)" in texts
    assert iterator.get_state() == state
    prefetched = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=1))
    report = prefetched.report(SECONDS, verify=True)
    texts = [check.text for check in report.checks]
    assert texts[:2] == ["outputs from a cache", "one more worker (2)"]


def work_on(element):
    work(50)
    return element


def test_verify_restarts_data_that_ends_early():
    loader = loader_of(NUMBERS[:12], [Slow()], 0)
    iterator = iter(loader)
    taken(iterator, 4)
    report = iterator.report(verify=True, seconds=SECONDS)
    assert "one more worker (1)" in [check.text for check in report.checks]


def test_too_few_outputs_give_no_result():
    iterator = iter(loader_of(NUMBERS[:4], [Slow()], 0))
    assert len(taken(iterator, 3)) == 1
    (check,) = iterator.report(verify=True, seconds=SECONDS).checks
    assert check.found is None
    assert str(check).endswith("x, too few outputs to tell")


def test_owned_streams_do_not_try_more_workers():
    operations = [SlowFilter()]
    iterator = iter(loader_of(NUMBERS, operations, 1, streams=1))
    taken(iterator, 4)
    report = iterator.report(verify=True, seconds=SECONDS)
    iterator.close()
    # Other notes depend on the measured times.
    assert (
        "Not tried: one more worker (2), since each of the 1 streams needs one worker."
    ) in report.notes


def test_bad_records_of_a_trial_are_not_recorded(tmp_path):
    log = tmp_path / "bad.jsonl"

    class Bad(grain.transforms.Map):
        def map(self, element):
            if element == 30:
                raise ValueError("bad")
            return work_on(element)

    iterator = iter(
        loader_of(NUMBERS, [Bad()], 0, on_error="skip", quarantine=str(log))
    )
    taken(iterator, 5)
    iterator.report(verify=True, seconds=SECONDS)
    assert not log.exists() or log.read_text() == ""
    assert iterator.errors.count == 0


def test_report_without_outputs_has_notes():
    report = iter(loader_of(NUMBERS, [Fast()], 1)).report(verify=True)
    assert (report.limit, report.outputs, report.stages) == ("unknown", 0, ())
    assert report.notes == (
        "Too few outputs were computed to measure the stages.",
        "Not tried: no output has been timed.",
    )


def test_verify_requires_positive_seconds():
    iterator = iter(loader_of(NUMBERS, [Fast()], 0))
    next(iterator)
    with pytest.raises(ValueError, match=r"seconds must be .*, got 0"):
        iterator.report(verify=True, seconds=0)
    with pytest.raises(ValueError, match=r"seconds must be .*, got -1"):
        loader_of(NUMBERS, [Fast()], 0).report(-1)


def test_report_shows_predicted_and_found_gains():
    report = Report(
        limit="unknown",
        stage=None,
        seconds=0.0,
        outputs=0,
        outputs_per_s=0.0,
        bytes_per_s=0.0,
        waited=0.0,
        p50_s=0.0,
        p95_s=0.0,
        p99_s=0.0,
        checks=(Check("one more worker (3)", 1.449, 1.38), Check("all", 812.3, None)),
        untried=(
            Change("4 workers", 2.0, workers=4),
            Change("9 threads", 3.0, threads=9),
            Change("8 actors", 2.0),
        ),
    )
    *lines, untried, by_hand = str(report).split("\n")[-4:]
    assert untried == (
        "Untried: 4 workers; 9 threads. report(verify=True) measures it."
    )
    assert by_hand == "Untried: 8 actors."
    assert lines == [
        "Check: one more worker (3): predicted 1.45x, found 1.38x",
        "Check: all: predicted 812x, too few outputs to tell",
    ]
    assert lines[0] in report._repr_html_()
    assert dataclasses.replace(report, checks=()).checks == ()


def test_stage_time_excludes_inner_stages():
    spent = {}
    hot_run.measure(spent)
    outer = hot_run.begin()
    inner = hot_run.begin()
    work(1000)
    hot_run.end("inner", inner)
    hot_run.end("outer", outer)
    hot_run.measure(None)
    assert spent["inner"] > 10 * spent["outer"] >= 0
    assert hot_run.begin() == -1
    assert hot_run.end("inner", -1) is False


def test_times_of_workers_are_added():
    texts = [
        json.dumps([2, 1, [["a", 4000, 1000], ["b", 2000, 0]]]).encode(),
        b"",
        json.dumps([2, 1, [["a", 8000, 5000]]]).encode(),
    ]
    each = stage_times.mean_times(stage_times.sum_texts(texts))
    assert each == {"a": (3e-6, 1.0), "b": (5e-7, 0.0)}


def test_text_of_worker_times_has_bounded_length():
    times = stage_times.StageTimes()
    for clock in times.by_clock:
        clock.spent.update({f"{'x' * 60}{n}": 10**17 + n for n in range(100)})
    text = times.text()
    assert len(text) <= 2040
    wall, _ = stage_times.sum_texts([text.encode()])
    assert max(map(len, wall.spent)) == stage_times.NAME_CHARS
