"""Deferred steps, which do their work per batch, match the same steps one by one."""

import os

import pytest

import gristmill as g
from gristmill._observe import sampling
from support.deferring import (
    Pass,
    batch_threads,
    make_element,
    outputs_of,
    records,
    steps,
)

COUNT = 30
CORES = len(os.sched_getaffinity(0))


def source(bad=(), form="dict"):
    pairs = enumerate(records(COUNT, bad))
    return g.MapDataset.source(
        [make_element(form, each, i)[0] for i, each in pairs]
    ).seed(7)


def by_index(ds, decode, add, drop):
    ds = ds.map(decode).random_map(add).random_map(add).repeat(2)
    return ds.batch(4, drop_remainder=drop).to_iter_dataset()


def batches_of_iterator(ds, decode, add, drop):
    ds = ds.map(decode).random_map(add).random_map(add).shuffle().to_iter_dataset()
    return ds.batch(4, drop_remainder=drop)


def both(ds, decode, add, drop):
    ds = ds.map(decode).random_map(add).to_iter_dataset().seed(5)
    return ds.random_map(add).random_map(add).batch(4, drop_remainder=drop)


def iterated(ds, decode, add, drop):
    ds = ds.to_iter_dataset().seed(5).map(decode).random_map(add)
    return ds.batch(4, drop_remainder=drop)


def behind_a_filter(ds, decode, add, drop):
    ds = ds.filter(lambda element: element["label"] % 3).map(decode).random_map(add)
    return ds.to_iter_dataset().batch(4, drop_remainder=drop)


CHAINS = [by_index, batches_of_iterator, both, iterated, behind_a_filter]


def outputs(chain, eager, *, bad=(), drop=False, workers=0, form="dict", own=()):
    ds = source(bad, form)
    for step in own:
        ds = ds.map(step)
    batch_threads.clear()
    ds = chain(ds, *steps(eager, make_element(form, b"", 0)[1]), drop)
    if workers:
        ds = ds.mp_prefetch(g.MultiprocessingOptions(workers))
    iterator = iter(ds)
    found = outputs_of(iterator)
    iterator.close()
    assert bool(batch_threads) == (not eager and not workers)
    return found


@pytest.mark.parametrize("bad", [(), (5, 17)])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("chain", CHAINS)
def test_deferred_steps_match_eager_steps(chain, drop, bad):
    for own in ((), (Pass(),)):
        expected = outputs(chain, True, bad=bad, drop=drop, own=own)
        assert ("CorruptRecord" in str(expected)) == bool(bad)
        assert outputs(chain, False, bad=bad, drop=drop, own=own) == expected


@pytest.mark.parametrize("chain", [by_index, iterated])
def test_deferred_steps_match_eager_steps_in_workers(chain):
    expected = outputs(chain, True, bad=(17,), workers=2)
    assert outputs(chain, False, bad=(17,), workers=2) == expected


@pytest.mark.parametrize("form", ["tuple", "bare"])
def test_other_element_forms_match_eager_steps(form):
    expected = outputs(both, True, form=form)
    assert outputs(both, False, form=form) == expected


@pytest.mark.parametrize("chain", CHAINS)
def test_state_resumes(chain):
    expected = outputs(chain, True)
    iterator = iter(chain(source(), *steps(False, "image"), False))
    outputs_of(iterator, 3)
    state = iterator.get_state()
    assert outputs_of(iterator) == expected[3:]
    iterator.set_state(state)
    assert outputs_of(iterator) == expected[3:]
    iterator.close()


def test_batches_are_indexed():
    ds = source().map(steps(False, "image")[0]).batch(4)
    batch_threads.clear()
    batch = ds[7]
    assert batch["image"].tobytes() == b"".join(records(COUNT)[28:])
    assert batch_threads == [("MainThread", CORES)]


def test_threads_come_from_read_options():
    batch_threads.clear()
    ds = source().map(steps(False, "image")[0])
    list(ds.to_iter_dataset(g.ReadOptions(1)).batch(4))
    list(ds.batch(4).repeat(2).to_iter_dataset(g.ReadOptions(1)))
    assert {threads for _, threads in batch_threads} == {1}


def test_next_batch_is_prefetched_unless_user_code_runs():
    for chain in (by_index, batches_of_iterator, both, iterated):
        outputs(chain, False)
        assert any("prefetch" in thread for thread, _ in batch_threads)
        outputs(chain, False, own=[Pass()])
        assert {thread for thread, _ in batch_threads} == {"MainThread"}


def test_unbatched_elements_are_computed_immediately():
    (decode, _), data = steps(False, "image"), records(COUNT)
    batch_threads.clear()
    ds = source().map(decode)
    assert ds[3]["image"].tobytes() == data[3]
    assert next(iter(ds.to_iter_dataset()))["image"].tobytes() == data[0]
    labels = ds.batch(4, batch_fn=lambda batch: [each["label"] for each in batch])
    assert labels[0] == [0, 1, 2, 3]
    assert not batch_threads


@pytest.mark.parametrize("chain", [by_index, batches_of_iterator])
def test_measured_chains_defer(chain, monkeypatch):
    expected = outputs(chain, True, bad=(17,))
    monkeypatch.setattr(sampling, "FIRST_SAMPLE_NS", 0)
    monkeypatch.setattr(sampling, "SAMPLE_INTERVAL_NS", 0)
    assert outputs(chain, False, bad=(17,)) == expected
    timing = g.experimental.ExecutionTrackingMode.STAGE_TIMING
    options = g.experimental.DatasetOptions(execution_tracking_mode=timing)
    ds = chain(source(), *steps(False, "image"), False).set_options(options)
    batch_threads.clear()
    assert len(list(ds)) == len(batch_threads)
