"""Bad records: limits, the log, errors that are never skipped, replay."""

import dataclasses
import io
import json
import logging
import os
import re

import numpy as np
import pytest
from array_record.python import array_record_module

import gristmill as g
from gristmill import _core
from gristmill._engine.record_errors import substitute_candidates
from gristmill.bad_records import BadRecord, ErrorPolicy
from gristmill.errors import ShapeMismatch, StateMismatch, TooManyErrors
from models.on_error import Case, Double, Draw, Number, Parts, Rows, loader, plain

LOCAL_AND_WORKERS = [0, pytest.param(2, marks=pytest.mark.multiprocess)]
TOLERANT = ("skip", "substitute")


def of(operations, *, records=12, on_error="skip", source=None, **options):
    """Return a loader of 0, 1, ... in order, in one stream."""
    options.setdefault("sampler", g.IndexSampler(records, shuffle=False, num_epochs=1))
    return g.DataLoader(
        data_source=g.RangeDataSource(0, records, 1) if source is None else source,
        operations=operations,
        on_error=on_error,
        shard_options=g.NoSharding(),
        **options,
    )


class Fails(g.MapTransform):
    """Raises the exceptions of `make` for some records."""

    def __init__(self, records, make=lambda x: ValueError(f"no {x}")):
        self.records = records
        self.make = make

    def map(self, x):
        if int(np.asarray(x).flat[0]) in self.records:
            raise self.make(x)
        return x


def listed(outputs):
    return [np.asarray(output).tolist() for output in outputs]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# Arguments.


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"on_error": "ignore"}, ValueError, "on_error must be one of .* got 'ignore'"),
        ({"on_error": None}, ValueError, "on_error must be one of"),
        ({"max_errors": -1}, ValueError, "max_errors must be at least 0, got -1"),
        ({"max_errors": 1.5}, TypeError, "max_errors must be an int, got float"),
        ({"quarantine": 3}, TypeError, "int"),
        ({"on_error": "raise", "max_errors": 1}, ValueError, "no meaning with on_er"),
        ({"on_error": "raise", "quarantine": "x"}, ValueError, "no meaning"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(options, kind, text):
    with pytest.raises(kind, match=text):
        of([], **options)


def test_unwritable_quarantine_is_rejected_at_construction(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        of([], quarantine=tmp_path / "nowhere" / "log")
    assert "quarantine" in caught.value.__notes__[0]
    with pytest.raises(IsADirectoryError):
        of([], quarantine=tmp_path)


def test_quarantine_path_survives_chdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = of([Fails({3})], quarantine="log")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    list(made)
    assert [line["key"] for line in lines_of(tmp_path / "log")] == [3]


def test_policies_have_equality_and_repr():
    assert ErrorPolicy("skip", np.int64(3)) == ErrorPolicy("skip", 3)
    assert repr(ErrorPolicy()) == (
        "ErrorPolicy(on_error='raise', max_errors=None, quarantine=None)"
    )


# Without bad records.


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("steps", [(), (Draw(),), (Parts(),), (Parts(), Draw())])
@pytest.mark.parametrize("on_error", TOLERANT)
def test_without_bad_records_policies_match_raise(on_error, steps, workers):
    case = Case("raise", steps=steps, batch=3, streams=2)
    strict, tolerant = (
        iter(loader(dataclasses.replace(case, on_error=kind), workers))
        for kind in ("raise", on_error)
    )
    for output in strict:
        assert plain(next(tolerant)) == plain(output)
        assert tolerant.get_state() == strict.get_state()
    assert next(tolerant, None) is None
    assert tolerant.get_state() == strict.get_state()


def test_tables_are_still_gathered(monkeypatch):
    batches = of([g.Batch(5)], source=np.arange(12))
    monkeypatch.setattr("gristmill._hot.run.run_block", None)
    assert listed(batches) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]


def test_raise_policy_raises_and_continues():
    iterator = iter(of([Fails({4}), g.Batch(3)], on_error="raise"))
    next(iterator)
    with pytest.raises(ValueError, match="no 4"):
        next(iterator)
    assert listed(iterator) == [[5, 6, 7], [8, 9, 10], [11]]
    assert b"errors" not in iterator.get_state()
    assert iterator.errors.count == 0


# Errors that are skipped.


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_batches_except_the_last_stay_full(workers):
    skipped = of([Fails({0, 4, 5, 11}), g.Batch(3)], worker_count=workers, streams=1)
    assert listed(skipped) == [[1, 2, 3], [6, 7, 8], [9, 10]]


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_bad_records_at_the_end_are_counted(workers, tmp_path):
    made = of(
        [Fails({10, 11}), g.Batch(5, drop_remainder=True)],
        worker_count=workers,
        streams=1,
        quarantine=tmp_path / "log",
    )
    iterator = iter(made)
    assert listed(iterator) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert [line["key"] for line in lines_of(tmp_path / "log")] == [10, 11]
    again = iter(made)
    again.set_state(iterator.get_state())
    assert next(again, None) is None
    assert (again.errors.count, len(lines_of(tmp_path / "log"))) == (2, 2)


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_skip_of_all_bad_data_yields_nothing(workers):
    made = of([Fails(range(12)), g.Batch(2)], worker_count=workers, streams=2)
    iterator = iter(made)
    assert list(iterator) == []
    assert iterator.errors.count == 12


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("flat", [False, True])
def test_all_bad_data_has_no_substitute(workers, flat):
    every = frozenset(range(5))
    steps = (Double(every), Parts()) if flat else (Double(every),)
    case = Case("substitute", records=5, steps=steps)
    iterator = iter(loader(case, workers))
    for key in range(5):
        with pytest.raises(
            TooManyErrors, match=f"Record {key} failed, and so did"
        ) as e:
            next(iterator)
        assert repr(e.value.__cause__) == f"KeyError({key})"
    assert next(iterator, None) is None


def test_only_record_of_a_stream_has_no_substitute():
    with pytest.raises(TooManyErrors, match="no other record in its stream"):
        next(iter(of([Fails({0})], records=1, on_error="substitute")))


def test_substitutes_are_tried_from_near_to_far():
    assert list(substitute_candidates(3, 100))[:11] == [
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        19,
        35,
        67,
    ]
    assert list(substitute_candidates(98, 100))[:3] == [99, 0, 1]
    assert list(substitute_candidates(2, 4)) == [3, 0, 1]
    assert list(substitute_candidates(0, 1)) == []
    assert (
        list(substitute_candidates(5, 2**62))[8:]
        != list(substitute_candidates(6, 2**62))[8:]
    )


@pytest.mark.parametrize("length", [1, 2, 9, 16, 100, 1024, 1025, 1026, 2**62])
def test_each_substitute_is_tried_once(length):
    position = length // 3
    tried = list(substitute_candidates(position, length))
    assert len(set(tried)) == len(tried) == min(length - 1, 1024)
    assert position not in tried
    assert all(0 <= other < length for other in tried)


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_every_good_record_of_small_stream_may_substitute(workers):
    made = of(
        [Fails(range(12))],
        records=16,
        on_error="substitute",
        worker_count=workers,
        streams=1,
    )
    outputs = list(made)
    assert len(outputs) == 16
    assert set(outputs) == {12, 13, 14, 15}


def test_few_good_records_substitute_evenly():
    good = range(990, 1000)
    outputs = list(of([Fails(range(990))], records=1000, on_error="substitute"))
    repeats = [outputs.count(value) for value in good]
    assert sum(repeats) == 1000
    assert 60 < min(repeats) < max(repeats) < 150, repeats


def test_error_names_some_of_the_records_tried():
    with pytest.raises(TooManyErrors, match=r"\[1, 2, 3, .*\] and 983 more") as caught:
        next(iter(of([Fails(range(1000))], records=1000, on_error="substitute")))
    assert len(str(caught.value)) < 400


def test_long_bad_stretch_gets_various_substitutes():
    stretch = range(100, 400)
    made = of([Fails(stretch)], records=1000, on_error="substitute")
    outputs = list(made)
    assert len(outputs) == 1000
    assert not set(outputs) & set(stretch)
    assert outputs[:100] == list(range(100)) and outputs[400:] == list(range(400, 1000))
    repeats = max(outputs.count(value) for value in set(outputs[100:400]))
    # Eight neighbours, one record per power of two, and the record itself.
    assert repeats <= 8 + 9 + 1, repeats


def test_ids_match_the_batch():
    iterator = iter(of([Fails({1, 2}), g.Batch(3)], on_error="substitute"))
    assert next(iterator).tolist() == iterator.ids().tolist() == [0, 3, 3]
    iterator = iter(of([Fails({1, 2}), g.Batch(3)]))
    assert next(iterator).tolist() == iterator.ids().tolist() == [0, 3, 4]


def drawing(x, rng):
    drawn = int(rng.integers(1000))
    if x in (4, 7):
        raise KeyError(x)
    return x, drawn


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("on_error", TOLERANT)
def test_legacy_operations_follow_on_error(on_error, workers, tmp_path):
    class Drawing(g.RandomMapTransform):
        def random_map(self, x, rng):
            return drawing(x, rng)

    class Odd(g.FilterTransform):
        def filter(self, x):
            return 1 // (x - 2) is not None and x % 2

    def run(name, operations):
        log = tmp_path / name
        made = of(
            [*operations, g.Batch(2)],
            on_error=on_error,
            sampler=g.IndexSampler(12, shuffle=True, num_epochs=1, seed=2),
            worker_count=workers,
            streams=1,
            quarantine=log,
        )
        outputs, state = [], made.__iter__().get_state()
        for _ in range(20):
            # A new iterator, started from a state, computes each output.
            iterator = iter(made)
            iterator.set_state(state)
            output = next(iterator, None)
            if output is None:
                break
            outputs.append([part.tolist() for part in output])
            state = iterator.get_state()
            iterator.close()
        return outputs, lines_of(log)

    double = Fails({8})
    outputs, lines = run("new", [Odd(), double, Drawing()])
    old = [
        g.FilterOperation(Odd().filter),
        g.MapOperation(double.map),
        g.RandomMapOperation(drawing),
    ]
    old_outputs, old_lines = run("old", old)
    assert old_outputs == outputs
    assert len(outputs) > 1
    assert [line["key"] for line in old_lines] == [line["key"] for line in lines]
    assert lines
    assert all(
        old["message"].endswith(f"(from {new['error']}: {new['message']})")
        for old, new in zip(old_lines, lines, strict=True)
    )


# Damaged files.


class Parse(g.MapTransform):
    def map(self, record):
        return np.frombuffer(record, np.int64)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def damaged(tmp_path, group, chunks, pack=np.ndarray.tobytes):
    """Write 64 records, each its number 100 times, and flip a bit in some chunks."""
    path = tmp_path / f"{group}.array_record"
    writer = array_record_module.ArrayRecordWriter(str(path), f"group_size:{group}")
    for i in range(64):
        writer.write(pack(np.full(100, i)))
    writer.close()
    file = _core.RecordFile(str(path))
    ends = [file.chunk(chunk)[1] for chunk in chunks]
    file.close()
    data = bytearray(path.read_bytes())
    for end in ends:
        data[end - 1] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("group", "chunks"), [(1, [0, 5, 63]), (4, [3, 4])])
def test_damaged_chunks_are_skipped_or_substituted(
    group, chunks, shuffle, workers, tmp_path
):
    path = damaged(tmp_path, group, chunks)
    lost = {chunk * group + i for chunk in chunks for i in range(group)}
    sampler = g.IndexSampler(64, shuffle=shuffle, num_epochs=1, seed=3)
    order = [sampler[i].record_key for i in range(64)]
    for on_error in TOLERANT:
        log = tmp_path / on_error
        source = g.ArrayRecordDataSource(str(path))
        made = of([Parse(), g.Batch(8)], source=source, sampler=sampler, streams=1,
                  on_error=on_error, worker_count=workers, quarantine=log)  # fmt: skip
        batches = list(made)
        kept = [key for key in order if key not in lost]
        if on_error == "skip":
            assert np.concatenate(batches)[:, 0].tolist() == kept
        else:
            firsts = np.concatenate(batches)[:, 0].tolist()
            assert [batch.shape for batch in batches] == [(8, 100)] * 8
            assert not set(firsts) & lost
            good = [at for at, key in enumerate(order) if key not in lost]
            assert [firsts[at] for at in good] == kept
        lines = lines_of(log)
        assert [line["key"] for line in lines] == [k for k in order if k in lost]
        for line in lines:
            assert (line["operation"], line["error"]) == (
                "read",
                "gristmill.errors.CorruptRecord",
            )
            assert f"{path}: record {line['key']}: " in line["message"]


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("on_error", TOLERANT)
def test_natively_decoded_batches_follow_on_error(on_error, workers, tmp_path):
    path = damaged(tmp_path, 1, [5], lambda a: b"" if a[0] == 20 else npy(a))
    made = of(
        [g.transforms.DecodeNpy(), g.Batch(8)],
        source=g.ArrayRecordDataSource(str(path)),
        records=64,
        on_error=on_error,
        streams=1,
        worker_count=workers,
        quarantine=tmp_path / "log",
    )
    firsts = np.concatenate(list(made))[:, 0].tolist()
    if on_error == "skip":
        assert firsts == [i for i in range(64) if i not in (5, 20)]
    else:
        assert firsts == [{5: 6, 20: 21}.get(i, i) for i in range(64)]
    lines = [(line["key"], line["operation"]) for line in lines_of(tmp_path / "log")]
    assert lines == [(5, "read"), (20, "DecodeNpy")]


# Errors that are raised.


class Shapes(g.MapTransform):
    def map(self, x):
        return np.zeros(2 if x == 4 else 3)


def failing(record):
    if record.data == 4:
        raise LookupError("no 4")
    return record


def refuse(elements):
    raise ValueError("no batch")


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("on_error", TOLERANT)
@pytest.mark.parametrize(
    ("operations", "kind"),
    [
        ([Shapes(), g.Batch(3)], ShapeMismatch),
        ([g.Batch(3, batch_fn=refuse)], ValueError),
        ([g.Batch(3), Fails({3})], ValueError),
        ([Fails({4}, lambda x: MemoryError()), g.Batch(3)], MemoryError),
        ([Fails({4}, lambda x: StateMismatch()), g.Batch(3)], StateMismatch),
        ([lambda records: map(failing, records), g.Batch(3)], LookupError),
    ],
)
def test_errors_not_caused_by_records_are_raised(operations, kind, on_error, workers):
    options = {"on_error": on_error, "worker_count": workers, "streams": 1}
    iterator = iter(of(operations, **options))
    with pytest.raises(kind) as caught:
        list(iterator)
    assert type(caught.value) is kind
    assert iterator.errors.count == 0


class Unsteady:
    """A sampler that fails at position 4."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 4:
            raise LookupError("no such position")
        return g.RecordMetadata(index=index, record_key=index)


@pytest.mark.parametrize("on_error", TOLERANT)
@pytest.mark.parametrize("steps", [[], [Parts()]])
def test_sampler_errors_are_raised(on_error, steps):
    made = of(steps, on_error=on_error, sampler=Unsteady(), source=Rows(12))
    with pytest.raises(LookupError, match="no such position"):
        list(made)


class TooFew(Rows):
    def __getitems__(self, keys):
        return [self[keys[0]]] * (len(keys) - 1)


@pytest.mark.parametrize("on_error", TOLERANT)
def test_source_returning_too_few_records_raises(on_error):
    made = of([g.Batch(4)], source=TooFew(12), on_error=on_error,
              read_options=g.ReadOptions(0, 0))  # fmt: skip
    with pytest.raises(ValueError, match=r"__getitems__ .* 4 keys, got 3"):
        next(iter(made))


@pytest.mark.parametrize("on_error", TOLERANT)
@pytest.mark.parametrize("steps", [[], [Parts()]])
def test_interrupt_loses_and_counts_nothing(steps, on_error):
    pressed = iter([KeyboardInterrupt()])

    def now_and_then(row):
        if row["key"] == 7:
            raise next(pressed, ValueError("no 7"))
        return row

    class Pressed(g.MapTransform):
        def map(self, row):
            return now_and_then(row)

    case = Case(on_error, records=12, bad_reads=frozenset({6}), batch=4)
    steady = Fails7()
    wanted = [
        plain(b) for b in loader(dataclasses.replace(case, steps=(*steps, steady)))
    ]
    iterator = iter(loader(dataclasses.replace(case, steps=(*steps, Pressed()))))
    outputs = []
    for _ in range(50):
        state = iterator.get_state()
        try:
            outputs.append(plain(next(iterator)))
        except KeyboardInterrupt:
            assert iterator.get_state() == state
        except StopIteration:
            break
    assert outputs == wanted
    assert iterator.errors.count == 2


class Fails7(g.MapTransform):
    def map(self, row):
        if row["key"] == 7:
            raise ValueError("no 7")
        return row


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_bad_records_before_a_raised_error_count(workers, tmp_path):
    def make(elements):
        if 6 in elements:
            raise ValueError("no batch of 6")
        return list(elements)

    made = of([Fails({1, 5, 8}), g.Batch(3, batch_fn=make)], worker_count=workers,
              streams=1, quarantine=tmp_path / "log")  # fmt: skip
    iterator = iter(made)
    assert next(iterator) == [0, 2, 3]
    with pytest.raises(ValueError, match="no batch of 6"):
        next(iterator)
    assert [line["key"] for line in lines_of(tmp_path / "log")] == [1, 5]
    assert iterator.errors.count == 2
    assert next(iterator) == [9, 10, 11]
    assert [line["key"] for line in lines_of(tmp_path / "log")] == [1, 5, 8]


@pytest.mark.multiprocess
@pytest.mark.parametrize("on_error", TOLERANT)
@pytest.mark.parametrize("batch", [False, True])
def test_bad_records_of_unpicklable_outputs_count(on_error, batch):
    class Odd(g.MapTransform):
        def map(self, x):
            if x in (1, 4, 7):
                raise ValueError(f"no {x}")
            return os.scandir("/") if x == 5 else x

    steps = [Odd(), g.Batch(3, batch_fn=list)] if batch else [Odd()]
    iterator = iter(of(steps, on_error=on_error, worker_count=1))
    outputs, counts = [], []
    for _ in range(20):
        try:
            outputs.append(next(iterator))
        except TypeError as error:
            assert "pickle" in str(error)
            counts.append(iterator.errors.count)
        except StopIteration:
            break
    assert iterator.errors.count == 3
    if batch:
        wanted = {"skip": ([0, 2, 3], [3]), "substitute": ([0, 2, 2], [2])}
        assert (outputs[0], counts) == wanted[on_error]
    elif on_error == "skip":
        assert (outputs, counts) == ([0, 2, 3, 6, 8, 9, 10, 11], [2])
    else:
        assert (outputs, counts) == ([0, 2, 2, 3, 6, 8, 8, 9, 10, 11], [2, 2])


# Limits.


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("on_error", TOLERANT)
def test_too_many_errors_lose_nothing(on_error, workers, tmp_path):
    options = {"on_error": on_error, "worker_count": workers, "streams": 1}
    steps = [Fails({1, 4, 5, 9}), g.Batch(3)]
    wanted = listed(of(steps, **options))
    made = of(steps, **options, max_errors=2, quarantine=tmp_path / "log")
    iterator = iter(made)
    assert next(iterator).tolist() == wanted[0]
    before = iterator.get_state()
    with pytest.raises(TooManyErrors) as caught:
        next(iterator)
    assert iterator.get_state() == before
    text = str(caught.value)
    assert "max_errors=2 records may fail, but 3 records failed" in text
    assert "record 5 in Fails (ValueError: no 5)" in text
    assert str(tmp_path / "log") in text
    assert str(caught.value.__cause__) == "no 5"
    assert caught.value.__cause__.__traceback__ is not None
    # The iterator continues if the caller does.
    assert next(iterator).tolist() == wanted[1]
    assert iterator.errors.count == 3
    outputs = []
    for _ in range(20):
        try:
            outputs.append(next(iterator).tolist())
        except TooManyErrors:
            continue
        except StopIteration:
            break
    assert outputs == wanted[2:]
    assert [line["key"] for line in lines_of(tmp_path / "log")] == [1, 4, 5, 9]
    # Another loader resumes from the state before the error.
    patient = iter(of(steps, **options, max_errors=4))
    patient.set_state(before)
    assert listed(patient) == wanted[1:]
    assert patient.errors.count == 4


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_resuming_with_larger_limit_logs_nothing_twice(workers, tmp_path):
    options = {"worker_count": workers, "streams": 1, "quarantine": tmp_path / "log"}
    steps = [Fails({1, 2, 7}), g.Batch(4)]
    iterator = iter(of(steps, **options, max_errors=1))
    with pytest.raises(TooManyErrors, match="record 2 in Fails"):
        next(iterator)
    assert lines_of(tmp_path / "log") == []
    patient = iter(of(steps, **options, max_errors=10))
    patient.set_state(iterator.get_state())
    assert listed(patient) == [[0, 3, 4, 5], [6, 8, 9, 10], [11]]
    assert [line["key"] for line in lines_of(tmp_path / "log")] == [1, 2, 7]


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_restored_count_counts_toward_the_limit(workers):
    made = of([Fails({1, 4, 7})], worker_count=workers, streams=1, max_errors=2)
    iterator = iter(made)
    taken = [next(iterator) for _ in range(4)]
    assert taken == [0, 2, 3, 5]
    other = iter(made)
    other.set_state(iterator.get_state())
    assert next(other) == 6
    with pytest.raises(TooManyErrors, match="3 records failed"):
        next(other)
    # A state from before the error also restores the count.
    other.set_state(iterator.get_state())
    assert (next(other), other.errors.count) == (6, 2)


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_limit_exceeded_at_the_end_raises(workers):
    iterator = iter(of([Fails({11})], worker_count=workers, streams=1, max_errors=0))
    assert [next(iterator) for _ in range(11)] == list(range(11))
    with pytest.raises(TooManyErrors):
        next(iterator)
    assert next(iterator, None) is None


def test_close_keeps_the_pending_batch():
    iterator = iter(of([Fails({1}), g.Batch(3)], max_errors=0))
    with pytest.raises(TooManyErrors):
        next(iterator)
    iterator.close()
    assert listed(iterator) == [[0, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11]]


class Sealed(Exception):
    """Cannot be pickled, and cannot be recreated from its arguments."""

    def __init__(self, a, b):
        super().__init__(os.scandir("/"))

    def __str__(self):
        return "sealed"


@pytest.mark.multiprocess
def test_unpicklable_exceptions_are_described():
    steps = [Fails({1, 2}, lambda x: Sealed(x, x))]
    iterator = iter(of(steps, worker_count=1, max_errors=1))
    assert next(iterator) == 0
    with pytest.raises(TooManyErrors, match="Sealed: sealed") as caught:
        next(iterator)
    assert "Sealed: sealed" in str(caught.value.__cause__)


# States of other policies.


@pytest.mark.parametrize("after", ["raise", *TOLERANT])
@pytest.mark.parametrize("before", ["raise", *TOLERANT])
def test_states_are_exchangeable_between_policies(before, after):
    def made(on_error):
        return of([Fails({4, 8}), g.Batch(3)], on_error=on_error)

    iterator = iter(made(before))
    next(iterator)
    if before != "raise":
        next(iterator)
    count = iterator.errors.count
    other = iter(made(after))
    other.set_state(iterator.get_state())
    assert other.get_state() == iterator.get_state()
    assert other.errors.count == count
    consumed = {"raise": 3, "skip": 7, "substitute": 6}[before]
    rest = {
        ("raise", 3): [[5, 6, 7], [9, 10, 11]],
        ("raise", 6): [[9, 10, 11]],
        ("raise", 7): [[9, 10, 11]],
        ("skip", 3): [[3, 5, 6], [7, 9, 10], [11]],
        ("skip", 6): [[6, 7, 9], [10, 11]],
        ("skip", 7): [[7, 9, 10], [11]],
        ("substitute", 3): [[3, 5, 5], [6, 7, 9], [9, 10, 11]],
        ("substitute", 6): [[6, 7, 9], [9, 10, 11]],
        ("substitute", 7): [[7, 9, 9], [10, 11]],
    }[after, consumed]
    outputs = []
    for _ in range(9):
        try:
            outputs.append(next(other).tolist())
        except ValueError:
            continue
        except StopIteration:
            break
    assert outputs == rest


@pytest.mark.parametrize("errors", [-1, 1.5, "2", True, None])
def test_invalid_error_count_is_rejected(errors):
    iterator = iter(of([Fails({0})]))
    next(iterator)
    state = json.loads(iterator.get_state())
    state["gristmill"]["errors"] = errors
    text = re.escape(f"'errors' of the checkpoint must be an int >= 0, got {errors!r}")
    with pytest.raises(StateMismatch, match=text):
        iterator.set_state(json.dumps(state).encode())


# Logs, warnings and reports.


def test_log_line_has_all_fields(tmp_path):
    log = tmp_path / "log"
    case = Case("substitute", records=4, bad_reads=frozenset({1}), steps=(Number(),))
    list(loader(case, quarantine=log))
    [line] = lines_of(log)
    time = line.pop("time")
    assert line == {
        "key": 1,
        "index": 1,
        "stream": 0,
        "operation": "read",
        "error": "OSError",
        "message": "row 1",
        "substitute": 2,
        "data_source": "Rows(4)",
    }
    assert time.endswith("+00:00") and len(time) == len("2026-01-01T00:00:00.000+00:00")


def test_unusual_exceptions_are_logged(tmp_path):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("not telling")

    made = {1: Mute(), 2: ValueError("\udcff\n" * 2000), 3: g.GristmillError("x")}
    log = tmp_path / "log"
    list(of([Fails(made, made.__getitem__)], quarantine=log))
    first, second, third = lines_of(log)
    assert first["error"].endswith("Mute")
    assert first["message"] == "(it cannot be printed)"
    assert second["message"] == "\udcff\n" * 1000 + "..."
    assert third["error"] == "gristmill.errors.GristmillError"


def test_restored_iterator_logs_again(tmp_path):
    log = tmp_path / "log"
    iterator = iter(of([Fails({1}), g.Batch(3)], quarantine=log))
    start = iterator.get_state()
    next(iterator)
    iterator.set_state(start)
    assert iterator.errors.count == 0
    next(iterator)
    assert [line["key"] for line in lines_of(log)] == [1, 1]


@pytest.mark.multiprocess
def test_bad_records_computed_ahead_are_not_logged(tmp_path):
    log = tmp_path / "log"
    made = of([Fails({0, 5}), g.Batch(3)], worker_count=1, quarantine=log)
    iterator = iter(made)
    iterator.start_prefetch()
    next(iterator)
    iterator.close()
    assert [line["key"] for line in lines_of(log)] == [0]


def test_bad_records_before_one_output_cause_one_warning(caplog):
    made = of([Fails(range(1, 121))], records=130)
    with caplog.at_level(logging.WARNING, "gristmill"):
        list(made)
    counts = [record.args[0] for record in caplog.records]
    assert counts == [120] and "Bad records so far" in caplog.text


def test_warnings_come_at_each_power_of_ten(caplog):
    made = of([Fails(range(0, 240, 2))], records=240)
    with caplog.at_level(logging.WARNING, "gristmill"):
        list(made)
    assert [record.args[0] for record in caplog.records] == [1, 10, 100]


def test_last_errors_are_available():
    iterator = iter(of([Fails(range(0, 40, 2))], records=40))
    list(iterator)
    assert iterator.errors.count == 20
    assert [bad.key for bad in iterator.errors.last] == list(range(20, 40, 2))
    assert iterator.errors.last[-1] == BadRecord(
        key=38, index=38, stream=0, operation="Fails", error="ValueError",
        message="no 38",
    )  # fmt: skip


@pytest.mark.parametrize("on_error", TOLERANT)
def test_replay_returns_the_output_and_logs_nothing(on_error, tmp_path):
    log = tmp_path / "log"
    made = of([Fails({1, 4, 5}), g.Batch(3)], on_error=on_error, quarantine=log,
              max_errors=0)  # fmt: skip
    iterator = iter(made)
    with pytest.raises(TooManyErrors):
        next(iterator)
    state = iterator.get_state()
    replayed = made.replay(state)
    assert log.read_text() == ""
    assert replayed.tolist() == next(iterator).tolist()
    everything_after = json.loads(state)
    everything_after["last_seen_indices"]["0"] = 11
    with pytest.raises(StopIteration):
        made.replay(json.dumps(everything_after).encode())
