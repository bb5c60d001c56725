"""Compares Gristmill's DataLoader with Grain's, both live, on random pipelines."""

import hypothesis
import pytest
from hypothesis import strategies as st

from differential.descriptions import (
    Seeded,
    describe,
    describe_strange,
    descriptions,
    looks_ahead,
    strange_descriptions,
)
from differential.pipelines import (
    OURS,
    THEIRS,
    Description,
    build,
    ready,
    rest,
    trace,
)
from support import read_only

# Seeds of pipelines with workers; Grain takes seconds to start its processes.
WORKING = range(3000, 3003)
RESTORED_BY_GRAIN = 4
STRANGE = range(5000, 5002)
STRANGE_SOAKED = range(6000, 6300)
SOAKED = range(4000, 4500)


def assert_same_run(description: Description, grain_restores: bool = True) -> None:
    """Assert equal elements and states, and that each library restores the other's.

    Without ``grain_restores`` only Gristmill restores Grain's state. If Grain fails,
    Gristmill must fail at the same element in the same way.
    """
    theirs = trace(iter(build(description, THEIRS)), description, may_fail=True)
    ours = trace(iter(build(description, OURS)), description, may_fail=True)
    assert ours.elements == theirs.elements, (ours.error, theirs.error)
    assert ours.states == theirs.states
    if theirs.error is not None:
        assert isinstance(ours.error, type(theirs.error))
        return
    assert ours.error is None
    # Derived from the output, because drawing it would depend on the run.
    point = int(("".join(ours.elements) or "0")[-6:], 16) % (len(ours.elements) + 1)
    here = rest(build(description, OURS), description, theirs.states[point], point)
    if grain_restores or looks_ahead(description):
        loader = build(description, THEIRS)
        assert here == rest(loader, description, ours.states[point], point)
    else:
        assert here == theirs.elements[point:]


def comes_to_an_end(description: Description) -> bool:
    """Return whether the pipeline cannot filter an endless stream forever."""
    filters = any(
        operation["op"] == "filter" for operation in description["operations"]
    )
    return description["sampler"].get("num_epochs", 1) is not None or not filters


@hypothesis.settings(max_examples=75, deadline=None, derandomize=True)
@hypothesis.given(descriptions(workers=(0,)))
def test_pipelines_without_workers_equal_grain(description):
    assert_same_run(description)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@hypothesis.settings(max_examples=50, deadline=None, derandomize=True)
@hypothesis.given(strange_descriptions(workers=(0,)))
def test_strange_pipelines_without_workers_equal_grain(description):
    hypothesis.assume(comes_to_an_end(description))
    assert_same_run(description)


@pytest.mark.multiprocess
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", STRANGE)
def test_strange_pipelines_with_workers_equal_grain(seed):
    assert_same_run(describe_strange(Seeded(seed), [1, 2]), grain_restores=False)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@hypothesis.settings(max_examples=5000, deadline=None)
@hypothesis.given(strange_descriptions(workers=(0,)))
def test_many_strange_pipelines_without_workers_equal_grain(description):
    hypothesis.assume(comes_to_an_end(description))
    assert_same_run(description)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", STRANGE_SOAKED)
def test_many_strange_pipelines_with_workers_equal_grain(seed):
    assert_same_run(describe_strange(Seeded(seed), [1, 2, 3]))


@pytest.mark.multiprocess
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", WORKING)
def test_pipelines_with_workers_equal_grain(seed):
    description = describe(Seeded(seed), [1, 2, 2, 3])
    assert_same_run(description, grain_restores=seed % RESTORED_BY_GRAIN == 0)


class ReadOnly:
    """A source of elements with read-only arrays."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return read_only.all_elements()

    def __repr__(self):
        return "ReadOnly()"


@pytest.mark.multiprocess
@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 1])
def test_arrays_are_writable_exactly_like_grains(workers):
    def given(library):
        lib = ready(library)
        loader = lib.DataLoader(
            data_source=ReadOnly(),
            sampler=lib.SequentialSampler(2, lib.NoSharding()),
            worker_count=workers,
        )
        return [read_only.writability(element) for element in loader]

    assert given(OURS) == given(THEIRS)


@pytest.mark.soak
@hypothesis.settings(max_examples=5000, deadline=None)
@hypothesis.given(descriptions(workers=(0,)))
def test_many_pipelines_without_workers_equal_grain(description):
    assert_same_run(description)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SOAKED)
def test_many_pipelines_with_workers_equal_grain(seed):
    assert_same_run(describe(Seeded(seed), [1, 2, 3]))


@pytest.mark.claim(
    "The state of an exhausted FlatMap loader is restored with next_index_in_buffer 0"
)
@hypothesis.settings(max_examples=50, deadline=None, derandomize=True)
@hypothesis.given(descriptions(workers=(0,)), st.data())
def test_get_state_after_set_state_is_the_state(description, data):
    run = trace(iter(build(description, THEIRS)), description)
    state = data.draw(st.sampled_from(list(run.states.values())))
    iterator = iter(build(description, OURS))
    iterator.set_state(state)
    assert iterator.get_state() == state
