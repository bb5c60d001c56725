"""Stop anywhere, restore anywhere, get the rest: byte for byte.

The pipelines are those of tests/differential; only operations that hold records
no state remembers (Grain's contract for legacy operations) are left out.
"""

import itertools
import json
import pathlib
import subprocess
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from differential.descriptions import Seeded, describe, descriptions, looks_ahead
from differential.pipelines import (
    OURS,
    build,
    delivered,
    grains_part,
    remaining,
    trace,
)

WORKER_COUNTS = (0, 1, 2, 4)

# Reads a job from standard input, writes the digests of the rest.
FRESH_PROCESS = f"""
import json, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from differential.pipelines import OURS, build, rest
job = json.load(sys.stdin)
loader = build(job["description"], OURS, worker_count=job["workers"])
state, done = job["state"].encode(), job["done"]
print(json.dumps(rest(loader, job["description"], state, done)))
"""


def resumable(workers):
    """Strategy of descriptions whose states say everything."""
    return descriptions(workers=workers).filter(lambda made: not looks_ahead(made))


def long_seed():
    """Return the first seed of a description with 8 elements and full states."""
    for seed in itertools.count(5000):
        made = describe(Seeded(seed), (0,))
        elements = itertools.islice(build(made, OURS), 8)
        if not looks_ahead(made) and len(list(elements)) == 8:
            return seed
    raise AssertionError("unreachable")


def assert_hops_give_the_stream(description, hops):
    """Stop and restore at each hop; every element and state must be the same.

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
def test_again_and_again_without_workers(description, hops):
    assert_hops_give_the_stream(description, hops)


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
def test_again_and_again_in_any_worker_count(description, hops):
    assert_hops_give_the_stream(description, hops)


@pytest.mark.multiprocess
@pytest.mark.parametrize("after", WORKER_COUNTS)
@pytest.mark.parametrize("before", WORKER_COUNTS)
def test_from_any_worker_count_to_any_other(before, after):
    description = describe(Seeded(long_seed()), (before,))
    assert_hops_give_the_stream(description, [(3, after), (2, before)])


@pytest.mark.multiprocess
@pytest.mark.parametrize("after", WORKER_COUNTS)
@pytest.mark.parametrize("before", WORKER_COUNTS)
def test_in_a_fresh_process(before, after):
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
        [sys.executable, "-c", FRESH_PROCESS],
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
def test_worker_count_of_the_state_stays(workers):
    description = describe(Seeded(long_seed()), (2,))
    iterator = iter(build(description, OURS))
    next(iterator)
    state = iterator.get_state()
    other = iter(build(description, OURS, worker_count=workers))
    other.set_state(state)
    next(other)
    assert json.loads(other.get_state())["worker_count"] == 2


@pytest.mark.soak
@hypothesis.settings(max_examples=1000, deadline=None)
@hypothesis.given(
    resumable(workers=WORKER_COUNTS),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(WORKER_COUNTS)), max_size=8),
)
def test_many_times_in_any_worker_count(description, hops):
    assert_hops_give_the_stream(description, hops)
