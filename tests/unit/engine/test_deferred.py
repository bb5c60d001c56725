"""Deferred steps, which do their work per batch, match eager steps in loaders."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gristmill as g
from gristmill.transforms import Batch
from support import deferring
from support.deferring import (
    DEADLY,
    Pass,
    batch_threads,
    make_element,
    outputs_of,
    records,
    steps,
)
from support.waiting import wait_until_ended

COUNT = 30
CORES = len(os.sched_getaffinity(0))
THREAD = "gristmill-next-output_0"


@pytest.fixture(autouse=True)
def nothing_made() -> Iterator[None]:
    batch_threads.clear()
    yield
    wait_until_ended(t for t in threading.enumerate() if t.name == THREAD)


def loader(
    eager: bool,
    *,
    bad: tuple[int, ...] = (),
    form: str = "dict",
    before: tuple[Any, ...] = (),
    batch: Batch = Batch(4),  # noqa: B008 (it is frozen)
    source: list[Any] | None = None,
    **options: Any,
) -> g.DataLoader[Any]:
    source = records(COUNT, bad) if source is None else source
    pairs = [make_element(form, record, number) for number, record in enumerate(source)]
    sampler = g.samplers.IndexSampler(COUNT, shuffle=True, seed=3, num_epochs=1)
    return g.DataLoader(
        data_source=[element for element, _ in pairs],
        sampler=sampler,
        operations=[*before, *steps(eager, pairs[0][1]), batch],
        **options,
    )


def outputs(eager: bool, **options: Any) -> list[Any]:
    """Return the outputs of a loader with the state after each, and its bad records."""
    iterator = iter(loader(eager, **options))
    found: list[Any] = outputs_of(iterator)
    iterator.close()
    return [*found, deferring.text_without_eager(iterator.errors)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["dict", "tuple", "bare"])
def test_deferred_steps_match_eager_steps(form, workers):
    expected = outputs(True, form=form, worker_count=workers)
    assert len(expected) == 9
    assert not batch_threads
    assert outputs(False, form=form, worker_count=workers) == expected
    assert len(batch_threads) == (0 if workers else 8)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("on_error", ["raise", "skip", "substitute"])
def test_bad_records_match_eager_steps(on_error, drop_remainder, workers):
    how = {"on_error": on_error, "batch": Batch(4, drop_remainder)}
    # The last record is in the remainder.
    last = g.samplers.IndexSampler(COUNT, shuffle=True, seed=3, num_epochs=1)
    how["bad"] = (5, 17, last[COUNT - 1].record_key)
    how["worker_count"] = workers
    expected = outputs(True, **how)
    assert "17" in str(expected)
    assert outputs(False, **how) == expected


def test_bad_records_after_user_steps_and_blocks_are_found():
    class Blocks(g.transforms.BlockMap):
        block_size = 5

        def block_map(self, elements):
            return list(elements)

    for before in ((Pass(),), (Blocks(),)):
        how = {"before": before, "bad": (5, 6, 17), "on_error": "skip"}
        assert outputs(False, **how) == outputs(True, **how)
        assert batch_threads


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_stopping_source_keeps_its_partial_batch(drop_remainder):
    class Short:
        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            if index >= 10:
                raise StopIteration
            return records(COUNT)[index]

        def __repr__(self):
            return "Short"

    def found(eager):
        made = g.DataLoader(
            data_source=Short(),
            sampler=g.samplers.IndexSampler(COUNT, seed=3, num_epochs=1),
            operations=[*steps(eager, None), Batch(4, drop_remainder)],
        )
        return outputs_of(iter(made))

    expected = found(True)
    assert len(expected) == (2 if drop_remainder else 3)
    assert found(False) == expected
    assert batch_threads


def test_max_errors_applies():
    how = {"bad": (5, 6, 17), "on_error": "skip", "max_errors": 1}
    expected = outputs(True, **how)
    assert "TooManyErrors" in str(expected)
    assert outputs(False, **how) == expected


@pytest.mark.parametrize("workers", [0, 1])
def test_state_resumes(workers):
    expected = outputs_of(iter(loader(True, streams=2)))
    iterator = iter(loader(False, streams=2))
    for _ in range(3):
        next(iterator)
    state = iterator.get_state()
    assert outputs_of(iterator) == expected[3:]
    iterator.set_state(state)
    assert outputs_of(iterator) == expected[3:]
    iterator.close()
    other = iter(loader(False, worker_count=workers))
    other.set_state(state)
    assert [output for output, _ in outputs_of(other)] == [
        text for text, _ in expected[3:]
    ]
    other.close()


def test_replay_returns_the_next_output():
    iterator = iter(loader(False))
    next(iterator)
    state = iterator.get_state()
    assert str(loader(False).replay(state)) == str(next(iterator))
    iterator.close()


@pytest.mark.parametrize(("asked", "used"), [(0, 1), (1, 1), (64, CORES)])
def test_num_threads_is_limited_by_cores(asked, used):
    list(loader(False, read_options=g.ReadOptions(asked, 500)))
    assert {threads for _, threads in batch_threads} == {used}


def test_next_output_is_prefetched_unless_user_code_runs():
    list(loader(False))
    assert batch_threads[1][0] == THREAD
    batch_threads.clear()
    list(loader(False, before=(Pass(),)))
    list(loader(False, read_options=g.ReadOptions(0)))
    assert {name for name, _ in batch_threads} == {"MainThread"}


def test_batch_fn_disables_deferring():
    batch_fn = Batch(4, batch_fn=lambda elements: elements[0]["image"])
    expected = [batch.tobytes() for batch in loader(True, batch=batch_fn)]
    assert [batch.tobytes() for batch in loader(False, batch=batch_fn)] == expected
    assert not batch_threads


def test_batches_of_batches_have_the_same_bytes():
    pair = [Batch(2), Batch(3)]
    found = []
    for eager in (True, False):
        built = g.load(
            records(COUNT),
            transformations=[*steps(eager, None), *pair],
            shuffle=True,
            seed=1,
            num_epochs=1,
        )
        found.append([batch.tobytes() for batch in built])
    assert found[0] == found[1]


def test_replaced_worker_computes_one_by_one(tmp_path):
    source = records(COUNT)
    source[11] = DEADLY + b".."
    expected = outputs(True, source=source, worker_count=1)
    assert outputs(False, source=source, worker_count=1) == expected


def test_fork_continues_at_position_of_parent():
    expected = [text for text, _ in outputs_of(iter(loader(True)))]
    iterator = iter(loader(False))
    next(iterator)
    child = os.fork()
    if child == 0:
        found = [text for text, _ in outputs_of(iterator)]
        os._exit(0 if found == expected[1:] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [text for text, _ in outputs_of(iterator)] == expected[1:]
    iterator.close()


def test_shape_mismatch_matches_eager_steps():
    source = records(COUNT)
    source[3] = b"short"
    expected = outputs(True, source=source)
    assert "ShapeMismatch" in str(expected)
    assert outputs(False, source=source) == expected


def test_worker_batch_has_shape_and_dtype():
    (batch,) = loader(False, batch=Batch(COUNT), form="bare", worker_count=1)
    assert batch.shape == (COUNT, 8)
    assert batch.dtype == np.uint8
