"""`report(trace=True)` records when stages ran, and `Report.trace` writes that."""

import contextlib
import json
import os
import tempfile
import threading
import time

import pytest

import gristmill as grain
from gristmill._base.trace import Trace
from gristmill._engine import recording, stage_times
from gristmill._observe import recorded

WORKERS = grain.MultiprocessingOptions(num_workers=2)


class Double(grain.transforms.Map):
    def map(self, number):
        return burn(2 * number)


class Keep(grain.transforms.Filter):
    def filter(self, number):
        return burn(True)


def burn(result):
    """Return a result after some work, so that a step takes longer than the clock."""
    sum(range(200))
    return result


def square(number):
    return burn(number**2)


def written(report, path):
    """Return the events that a report writes; check what the format requires."""
    report.trace(path)
    with open(path) as file:
        content = json.load(file)
    assert content["displayTimeUnit"] == "ms"
    events = content["traceEvents"]
    for event in events:
        assert event["ph"] in "MX"
        assert isinstance(event["name"], str)
        assert {type(event["pid"]), type(event["tid"])} == {int}
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["name"].startswith(f"{event['cat']}: ")
    return events


def intervals_of(events):
    return [event for event in events if event["ph"] == "X"]


def names_of(events, pid=None):
    """Return the first words of the names of intervals, of one process or of all."""
    return {
        event["name"].split("(")[0]
        for event in intervals_of(events)
        if pid in (None, event["pid"])
    }


def processes_of(events):
    """Return the id of each process by its name."""
    return {
        event["args"]["name"]: event["pid"]
        for event in events
        if event["name"] == "process_name"
    }


def names_in_workers(events):
    """Return the first words of the names of intervals in workers."""
    pids = {pid for name, pid in processes_of(events).items() if name != "main"}
    return {name for pid in pids for name in names_of(events, pid)}


def assert_nested(events):
    """Check that two intervals of a thread are apart, or one contains the other."""
    threads = {}
    for event in intervals_of(events):
        threads.setdefault((event["pid"], event["tid"]), []).append(event)
    for each in threads.values():
        ends = []
        for event in sorted(each, key=lambda event: (event["ts"], -event["dur"])):
            end = round(1000 * (event["ts"] + event["dur"]))
            while ends and ends[-1] <= round(1000 * event["ts"]):
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)


def test_trace_of_loader_has_nested_intervals_of_steps(tmp_path):
    ops = [Double(), Keep(), grain.transforms.Batch(2)]
    loader = grain.load(range(4), transformations=ops, num_epochs=1)
    seen = []
    report = loader.report(seconds=60, consume=seen.append, trace=True)
    events = written(report, tmp_path / "trace.json")
    assert_nested(events)
    assert processes_of(events) == {"main": os.getpid()}
    (batch, *_) = [event for event in intervals_of(events) if event["cat"] == "batch"]
    inside = [
        event["name"]
        for event in intervals_of(events)
        if batch["ts"] < event["ts"] < batch["ts"] + batch["dur"]
    ]
    assert inside[0] == "read: range(0, 4)"
    steps = [name for name in inside if name.startswith("transform: ")]
    assert steps == ["transform: Double", "transform: Keep"] * 2
    counts = [event["name"] for event in intervals_of(events)]
    assert counts.count("transform: Double") == 4
    # The last call finds the end.
    assert counts.count("wait: next()") == 3
    assert counts.count("consumer: consume()") == 2
    assert report.notes == ()
    assert len({report}) == 1


@pytest.mark.multiprocess
def test_trace_of_loader_has_the_intervals_of_its_workers(tmp_path):
    loader = grain.load(
        range(40),
        transformations=[Double()],
        batch_size=2,
        num_epochs=1,
        worker_count=2,
    )
    events = written(loader.report(seconds=60, trace=True), tmp_path / "trace.json")
    assert_nested(events)
    processes = processes_of(events)
    assert processes.keys() <= {"main", "worker 0", "worker 1"}
    assert names_of(events, processes["main"]) == {
        "wait: next",
        "transport: taking outputs from workers",
    }
    names = [event["name"] for event in intervals_of(events)]
    # The last units may be missing: a worker ends when the loader is closed.
    assert 20 < names.count("transform: Double") <= 40
    assert names_in_workers(events) == {
        "read: range",
        "transform: Double",
        "batch: Batch",
        "transport: writing outputs in workers",
        "wait: waiting for work",
    }
    assert recording._FOLDER_VARIABLE not in os.environ


def test_trace_of_chain_has_its_threads(tmp_path):
    # Threads compute elements only if that waits.
    ds = grain.MapDataset.range(100).map(lambda number: time.sleep(1e-3) or number)
    ds = ds.to_iter_dataset(grain.ReadOptions(num_threads=2)).batch(2)
    events = written(ds.report(seconds=60, trace=True), tmp_path / "trace.json")
    assert_nested(events)
    assert names_of(events) == {
        "wait: next",
        "batch: BatchDatasetIterator",
        "prefetch: PrefetchDatasetIterator",
        "transform: MapMapDataset",
        "read: RangeMapDataset",
    }
    threads = {
        event["tid"]: event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert threads.pop(threading.get_native_id()) == "MainThread"
    assert {name.partition("_")[0] for name in threads.values()} == {"gristmill-read"}


@pytest.mark.multiprocess
def test_trace_of_chain_has_its_workers(tmp_path):
    ds = grain.MapDataset.range(40).map(square).to_iter_dataset().batch(2)
    ds = ds.mp_prefetch(WORKERS)
    events = written(ds.report(seconds=60, trace=True), tmp_path / "trace.json")
    assert_nested(events)
    assert names_in_workers(events) >= {
        "transform: the chain in workers",
        "batch: BatchDatasetIterator",
        "transform: MapMapDataset",
        "read: RangeMapDataset",
    }
    assert "transport: taking outputs from workers" in names_of(events)


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_trace_of_torch_loader_has_reads_and_collation(tmp_path, workers):
    from gristmill.torch import DataLoader

    class Numbers:
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return burn(index)

    # Other tests may have initialized JAX in this process.
    context = "launcher" if workers else None
    loader = DataLoader(
        Numbers(), batch_size=2, num_workers=workers, multiprocessing_context=context
    )
    events = written(loader.report(seconds=60, trace=True), tmp_path / "trace.json")
    assert_nested(events)
    names = [event["name"].split(".<locals>.")[-1] for event in intervals_of(events)]
    for name in ("Numbers.__getitem__", "batch: collate_fn default_collate"):
        assert (10 if workers else 20) <= names.count(name) <= 20
    in_workers = names_in_workers(events)
    assert ("batch: collate_fn default_collate" in in_workers) == (workers > 0)


def test_report_without_trace_records_nothing(monkeypatch):
    monkeypatch.delattr(recording, "Recorder")
    report = grain.load(range(40), num_epochs=1).report(seconds=60)
    assert report.recorded is None
    with pytest.raises(ValueError, match=r"Call report\(trace=True\) of a dataset or"):
        report.trace("trace.json")


def test_trace_keeps_the_first_intervals_of_a_long_run(monkeypatch):
    monkeypatch.setattr(recording, "MAX_PROCESS_INTERVALS", 10)
    loader = grain.load(range(40), num_epochs=1)
    report = loader.report(seconds=60, trace=True)
    assert len(report.recorded.intervals) == 10
    assert report.recorded.intervals[0].stage == "wait: next()"
    assert report.notes == (recorded.TOO_MANY_NOTE,)


@pytest.mark.parametrize("workers", [None, [7, 8]])
def test_missing_workers_are_noted(workers):
    report = grain.load(range(4), num_epochs=1).report(seconds=60)
    trace = Trace((), {1: "main", 7: "worker 0"}, {}, complete=True)
    report = recorded.with_intervals(report, trace, {}, workers)
    assert report.notes[-1] == recorded.MISSING_NOTE


def test_second_trace_of_a_process_at_a_time_is_an_error():
    loader = grain.load(range(4), num_epochs=1)
    with recording.recording(), pytest.raises(ValueError, match="Another report"):
        loader.report(trace=True)


@pytest.mark.multiprocess
@pytest.mark.parametrize("fails", [False, True])
def test_recording_ends_with_the_report(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = []

    def consume(batch):
        (folder,) = tmp_path.iterdir()
        folders.append(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        if fails:
            raise KeyError("consume")

    loader = grain.load(range(40), batch_size=2, num_epochs=1, worker_count=1)
    with pytest.raises(KeyError) if fails else contextlib.nullcontext():
        loader.report(seconds=60, consume=consume, trace=True)
    assert folders
    assert not list(tmp_path.iterdir())
    assert recording.current_recorder() is None
    assert recording._FOLDER_VARIABLE not in os.environ


def test_worker_that_outlives_the_recording_measures_only_some_calls(monkeypatch):
    monkeypatch.setattr(recording, "_recorders", {})
    with recording.recording():
        monkeypatch.setattr(recording, "_recorders", {})  # That of another process.
        times = stage_times.StageTimes(worker=0)
        worker_recorder = recording.current_recorder()
        for _ in range(2):
            times.measure("step", burn, 0)
            assert times.calls_until_measured == 1
    recording._recorders[os.getpid()] = worker_recorder
    for _ in range(2):  # One by each clock.
        times.measure("step", burn, 0)
    assert times.calls_until_measured > 1


def test_full_recorder_stops_measuring_each_call(monkeypatch):
    monkeypatch.setattr(recording, "MAX_PROCESS_INTERVALS", 2)
    with recording.recording() as recorded_run:
        times = stage_times.StageTimes()
        for _ in range(4):
            times.measure("step", burn, 0)
        assert times.calls_until_measured > 1
        trace = recorded_run.read()
    assert (len(trace.intervals), trace.complete) == (2, False)


def test_folder_of_another_user_gets_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv(recording._FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(recording, "_recorders", {})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    recording.start_in_worker(0)
    assert recording.current_recorder() is None
    assert not list(tmp_path.iterdir())


def test_fork_of_a_recorded_process_is_not_recorded():
    with recording.recording() as recorded_run:
        if (child := os.fork()) == 0:
            os._exit(recording.current_recorder() is not None)
        assert os.waitpid(child, 0) == (child, 0)
        assert recorded_run.read().process_names == {os.getpid(): "main"}
