"""Many bad records before one output: limits apply before it is complete."""

import json

import numpy as np
import pytest

import gristmill as g
from gristmill._engine.record_errors import ErrorCounter
from gristmill.errors import TooManyErrors
from models.on_error import Parts, Rows

LOCAL_AND_WORKERS = [
    0,
    pytest.param(1, marks=pytest.mark.multiprocess),
    pytest.param(2, marks=pytest.mark.multiprocess),
]


class Ends(g.FlatMapTransform):
    """Returns the first and the last row of a batch."""

    max_fan_out = 2

    def flat_map(self, rows):
        return [rows[0], rows[-1]]


def held(records):
    """A legacy step: an opaque generator over all records."""
    yield from records


CHAINS = {
    "alone": [],
    "batch": [g.Batch(4)],
    "batches": [g.Batch(4), g.Batch(2)],
    "flat": [Parts(), g.Batch(4)],
    "flat behind": [g.Batch(4, batch_fn=list), Ends(), g.Batch(2)],
    "legacy": [held, g.Batch(4)],
}


def rows(operations, bad, *, records=100, epochs=1, **options):
    """Return a loader of rows 0, 1, ..., which skips those in `bad`."""
    return g.DataLoader(
        data_source=Rows(records, frozenset(bad)),
        sampler=g.IndexSampler(records, shuffle=False, num_epochs=epochs),
        operations=operations,
        on_error="skip",
        **options,
    )


def plain(output):
    return {name: np.asarray(value).tolist() for name, value in output.items()}


def logged(path):
    return [json.loads(line)["key"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("chain", CHAINS)
def test_unreadable_source_raises_at_the_limit(chain, workers, tmp_path):
    made = rows(
        CHAINS[chain],
        range(100),
        epochs=None,
        worker_count=workers,
        max_errors=50,
        quarantine=tmp_path / "log",
    )
    iterator = iter(made)
    start = iterator.get_state()
    with pytest.raises(TooManyErrors, match=r"max_errors=50 .* 51 records failed"):
        next(iterator)
    assert iterator.get_state() == start
    # The next call continues after the records already tried.
    with pytest.raises(TooManyErrors, match=r"[0-9]{2,} records failed"):
        next(iterator)
    assert iterator.errors.count in (0, 1000)
    assert len(logged(tmp_path / "log")) == iterator.errors.count
    iterator.close()


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("chain", CHAINS)
def test_source_failing_within_a_batch_raises_at_the_limit(chain, workers):
    made = g.DataLoader(
        data_source=GoneFrom(10, 1 << 60),
        sampler=g.SequentialSampler(1 << 60),
        operations=CHAINS[chain],
        on_error="skip",
        max_errors=50,
        worker_count=workers,
        streams=1,
    )
    iterator = iter(made)
    state, given = iterator.get_state(), 0
    with pytest.raises(TooManyErrors, match=r"51 records .* record 60 in read"):
        for _ in range(100):
            next(iterator)
            state, given = iterator.get_state(), given + 1
    assert given == {"alone": 10, "batch": 2, "legacy": 2}.get(chain, given)
    assert iterator.get_state() == state
    iterator.close()


class GoneFrom(Rows):
    """Rows that cannot be read from key `first` on."""

    def __init__(self, first, count):
        super().__init__(count)
        self.first = first

    def __getitem__(self, key):
        if key >= self.first:
            raise OSError(f"row {key}")
        return super().__getitem__(key)


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("chain", CHAINS)
def test_elements_gathered_before_the_limit_are_kept(chain, workers):
    bad = range(6, 70)
    options = {"worker_count": workers, "streams": 1}
    wanted = [plain(output) for output in rows(CHAINS[chain], bad, **options)]
    iterator = iter(rows(CHAINS[chain], bad, max_errors=20, **options))
    outputs, told = [], 0
    for _ in range(200):
        state = iterator.get_state()
        try:
            outputs.append(plain(next(iterator)))
        except StopIteration:
            break
        except TooManyErrors:
            told += 1
            assert iterator.get_state() == state
            patient = iter(rows(CHAINS[chain], bad, max_errors=64, **options))
            patient.set_state(state)
            rest = [plain(output) for output in patient]
            assert rest == wanted[len(outputs) :]
            assert patient.errors.count == len(bad)
    assert outputs == wanted
    assert told == 1
    assert iterator.errors.count == len(bad)


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
@pytest.mark.parametrize("chain", ["alone", "batch", "batches", "flat"])
def test_bad_records_without_outputs_are_reported_in_blocks(
    chain, workers, tmp_path, monkeypatch
):
    taken = []
    account = ErrorCounter.account

    def counted(tally, passed, instead):
        account(tally, passed, instead)
        taken.append(len(passed[0]))

    monkeypatch.setattr(ErrorCounter, "account", counted)
    bad = range(8, 3508)
    made = rows(
        CHAINS[chain],
        bad,
        records=3600,
        worker_count=workers,
        streams=1,
        quarantine=tmp_path / "log",
    )
    iterator = iter(made)
    outputs = [plain(output) for output in iterator]
    assert max(taken) <= 1004
    assert sum(taken) == len(bad)
    assert logged(tmp_path / "log") == list(bad)
    good = rows(CHAINS[chain], (), records=3600)
    if chain != "flat":
        keys = np.concatenate([np.ravel(output["key"]) for output in outputs])
        assert keys.tolist() == [*range(8), *range(3508, 3600)]
    assert outputs[:1] == [plain(next(iter(good)))]


@pytest.mark.parametrize("workers", LOCAL_AND_WORKERS)
def test_state_within_a_long_bad_stretch_resumes(workers, tmp_path):
    options = {"records": 4000, "worker_count": workers}
    options |= {"streams": 2, "quarantine": tmp_path / "log"}
    bad = range(8, 3908)
    whole = [plain(output) for output in rows([g.Batch(4)], bad, **options)]
    (tmp_path / "log").unlink()
    iterator = iter(rows([g.Batch(4)], bad, max_errors=1500, **options))
    outputs = []
    with pytest.raises(TooManyErrors, match="2000 records failed"):
        while True:
            outputs.append(plain(next(iterator)))
    assert iterator.errors.count == 1000
    patient = iter(rows([g.Batch(4)], bad, **options))
    patient.set_state(iterator.get_state())
    outputs += [plain(output) for output in patient]
    assert outputs == whole
    assert patient.errors.count == len(bad)
    assert sorted(logged(tmp_path / "log")) == list(bad)


def test_incomplete_batch_after_many_errors_warns(caplog):
    made = rows([g.Batch(4)], range(5, 10_100), records=10_200)
    list(made)
    assert "Stream 0 has met 10000 bad records" in caplog.text
    assert "OSError: row 10004" in caplog.text


@pytest.mark.multiprocess
@pytest.mark.parametrize("limit", [None, 0, 20, 1500])
@pytest.mark.parametrize("chain", ["alone", "batch", "flat"])
def test_workers_match_local_run_at_limits(chain, limit):
    bad = [key for key in range(4000) if key % 3 == 1 or 100 < key < 3400]

    def run(workers):
        made = rows(
            CHAINS[chain],
            bad,
            records=4000,
            streams=3,
            worker_count=workers,
            max_errors=limit,
        )
        iterator, outputs = iter(made), []
        for _ in range(2000):
            try:
                outputs.append(plain(next(iterator)))
            except StopIteration:
                return outputs, iterator.errors
            except TooManyErrors as error:
                outputs.append(str(error))
        raise AssertionError("it does not end")

    assert run(2) == run(0)
