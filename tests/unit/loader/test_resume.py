"""Tests that a run stopped and restored anywhere continues byte for byte.

The pipelines are those of tests/differential, except operations that hold records
which are not part of a state (Grain's contract for legacy operations).
"""

import itertools
import json
import subprocess

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import gristmill as g
from differential.descriptions import Seeded, describe, descriptions, looks_ahead
from differential.pipelines import (
    OURS,
    build,
    delivered,
    grains_part,
    remaining,
    trace,
)
from faults.scripts import command, environment

WORKER_COUNTS = (0, 1, 2, 4)


def resumable(workers):
    """Return a strategy for descriptions whose states are complete."""
    return descriptions(workers=workers).filter(lambda made: not looks_ahead(made))


def long_seed():
    """Return the first seed with 8 elements, complete states and random draws."""
    for seed in itertools.count(5000):
        made = describe(Seeded(seed), (0,))
        draws = any(step["op"] == "random_map" for step in made["operations"])
        elements = itertools.islice(build(made, OURS), 8)
        if draws and not looks_ahead(made) and len(list(elements)) == 8:
            return seed
    raise AssertionError("unreachable")


def assert_hops_give_the_stream(description, hops):
    """Stop and restore at each hop, and compare every element and state.

    ``hops`` are (elements to take, worker count of the loader to go on in).
    """
    whole = trace(iter(build(description, OURS)), description)
    position, iterator = 0, iter(build(description, OURS))
    for step, workers in hops:
        for element in itertools.islice(iterator, step):
            if position == len(whole.elements):
                return
            assert delivered(description, element) == whole.elements[position]
            position += 1
            now = grains_part(description, iterator.get_state())
            assert now == whole.states[position]
        state = iterator.get_state()
        iterator = iter(build(description, OURS, worker_count=workers))
        iterator.set_state(state)
        assert iterator.get_state() == state
    assert remaining(iterator, description, position) == whole.elements[position:]


@hypothesis.settings(max_examples=100, deadline=None, derandomize=True)
@hypothesis.given(
    resumable(workers=(0,)),
    st.lists(st.tuples(st.integers(0, 12), st.just(0)), max_size=5),
)
def test_repeated_restores_without_workers_are_exact(description, hops):
    assert_hops_give_the_stream(description, hops)


@pytest.mark.claim("Resume")
@pytest.mark.multiprocess
@hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
@hypothesis.given(
    resumable(workers=WORKER_COUNTS),
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from(WORKER_COUNTS)),
        min_size=1,
        max_size=4,
    ),
)
def test_repeated_restores_with_any_worker_count_are_exact(description, hops):
    assert_hops_give_the_stream(description, hops)


@pytest.mark.claim("A state needs the same worker count")
@pytest.mark.claim("Random numbers")
@pytest.mark.multiprocess
@pytest.mark.parametrize("after", WORKER_COUNTS)
@pytest.mark.parametrize("before", WORKER_COUNTS)
def test_restore_with_other_worker_count_is_exact(before, after):
    description = describe(Seeded(long_seed()), (before,))
    assert_hops_give_the_stream(description, [(3, after), (2, before)])


@pytest.mark.claim("Resume")
@pytest.mark.claim("Random numbers")
@pytest.mark.multiprocess
@pytest.mark.parametrize("after", WORKER_COUNTS)
@pytest.mark.parametrize("before", WORKER_COUNTS)
def test_restore_in_new_process_is_exact(before, after):
    description = describe(Seeded(long_seed()), (before,))
    whole = trace(iter(build(description, OURS)), description)
    point = len(whole.elements) // 2
    job = {
        "description": description,
        "workers": after,
        "state": whole.states[point].decode(),
        "done": point,
    }
    done = subprocess.run(
        command("resume/rest"),
        env=environment(),
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == whole.elements[point:]


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", WORKER_COUNTS)
def test_restored_state_keeps_its_worker_count(workers):
    description = describe(Seeded(long_seed()), (2,))
    iterator = iter(build(description, OURS))
    next(iterator)
    state = iterator.get_state()
    other = iter(build(description, OURS, worker_count=workers))
    other.set_state(state)
    next(other)
    assert json.loads(other.get_state())["worker_count"] == 2


class Rows:
    """Returns its keys and records which ones were read."""

    def __init__(self):
        self.asked = []

    def __len__(self):
        return 400

    def __getitem__(self, key):
        self.asked.append(key)
        return key

    def __repr__(self):
        return "Rows()"


class Some(g.FilterTransform):
    def filter(self, element):
        return element % 3 != 0


class Parts(g.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element):
        return [element] * (element % 4)


CHAINS = {
    "alone": [],
    "batched": [g.Batch(4)],
    "filtered": [Some()],
    "filtered and batched": [Some(), g.Batch(4)],
    "split": [Parts()],
    "split and batched": [Parts(), g.Batch(5)],
}


def iterator_over(source, operations):
    """Return an iterator that reads no record before it is needed."""
    sampler = g.IndexSampler(400, shuffle=True, num_epochs=1, seed=0)
    loader = g.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        read_options=g.ReadOptions(0, 0),
    )
    return iter(loader)


def dataset_over(source, operations):
    """Return an iterator over a chain with the same operations."""
    dataset = g.MapDataset.source(source).shuffle(seed=0)
    dataset = dataset.to_iter_dataset(g.ReadOptions(0, 0))
    return iter(dataset.apply(operations))


@pytest.mark.claim("Resume")
@pytest.mark.parametrize("make", [iterator_over, dataset_over])
@pytest.mark.parametrize("chain", CHAINS)
def test_restore_reads_no_record_before_position(make, chain):
    whole, rest = Rows(), Rows()
    iterator = make(whole, CHAINS[chain])
    for _ in range(20):
        last = int(np.ravel(next(iterator))[-1])
    state = iterator.get_state()
    again = make(rest, CHAINS[chain])
    again.set_state(state)
    np.testing.assert_array_equal(next(again), next(iterator))
    done = whole.asked[: whole.asked.index(last)]
    assert not set(rest.asked) & set(done)


@pytest.mark.claim("Resume")
def test_restore_within_window_reads_from_its_start():
    def shuffled(source):
        dataset = g.MapDataset.source(source).to_iter_dataset(g.ReadOptions(0, 0))
        return iter(
            g.experimental.WindowShuffleIterDataset(dataset, window_size=10, seed=0)
        )

    source = Rows()
    iterator, again = shuffled(Rows()), shuffled(source)
    for _ in range(25):
        next(iterator)
    again.set_state(iterator.get_state())
    assert next(again) == next(iterator)
    assert min(source.asked) == 20


def leaves(state):
    """Return the values in a state, except the strings that name its pipeline."""
    if isinstance(state, dict):
        return [leaf for value in state.values() for leaf in leaves(value)]
    return [] if isinstance(state, str) else [state]


@pytest.mark.claim("Resume")
@pytest.mark.parametrize("chain", CHAINS)
def test_state_has_same_number_of_integers_everywhere(chain):
    def state_at(position):
        iterator = iterator_over(Rows(), CHAINS[chain])
        for _ in range(position):
            next(iterator)
        return leaves(json.loads(iterator.get_state()))

    near, far = state_at(1), state_at(40)
    assert {type(leaf) for leaf in near + far} == {int}
    assert len(near) == len(far) <= 4


@pytest.mark.soak
@hypothesis.settings(max_examples=1000, deadline=None)
@hypothesis.given(
    resumable(workers=WORKER_COUNTS),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(WORKER_COUNTS)), max_size=8),
)
def test_many_restores_with_any_worker_count_are_exact(description, hops):
    assert_hops_give_the_stream(description, hops)
