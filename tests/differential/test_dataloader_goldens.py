"""Compares Gristmill's DataLoader with goldens.json.gz, written by real Grain."""

import collections
import gzip
import json

import pytest

from differential.descriptions import looks_ahead
from differential.generate_goldens import PATH, describe_seed, golden
from differential.pipelines import OURS, build, digest, remaining, rest, trace

GOLDENS = json.loads(gzip.decompress(PATH.read_bytes()))
ALONE = [
    entry
    for entry in GOLDENS["pipelines"]
    if entry["description"]["loader"]["workers"] == 0
]
WORKING = [entry for entry in GOLDENS["pipelines"] if entry not in ALONE]

# `make test` runs one of three pipelines with workers in real worker processes.
PROCESSES_EVERY = 3


def by_seed(entries):
    """Parametrize over entries of the file, with their seeds as ids."""
    return pytest.mark.parametrize(
        "entry", entries, ids=[str(entry["seed"]) for entry in entries]
    )


def rests_of(entry):
    """Yield (position, state, elements after it) for states with a known rest."""
    for position, state in entry["saved"].items():
        done = int(position)
        if entry["rests"].get(position) is not None:
            yield done, state.encode(), entry["rests"][position]
        elif position in entry["rests"] or not looks_ahead(entry["description"]):
            yield done, state.encode(), entry["elements"][done:]


def assert_like_grain(entry):
    """Assert that elements, states and rests after a restore equal Grain's."""
    description = entry["description"]
    run = trace(iter(build(description, OURS)), description)
    end = run.states.pop("end", None)
    assert run.elements == entry["elements"]
    for point, state in entry["saved"].items():
        assert run.states[int(point)].decode() == state
    assert [digest(state) for state in run.states.values()] == entry["states"]
    assert (None if end is None else end.decode()) == entry["end"]
    for done, state, expected in rests_of(entry):
        assert rest(build(description, OURS), description, state, done) == expected


def test_goldens_cover_all_worker_counts():
    counts = collections.Counter(
        entry["description"]["loader"]["workers"] for entry in GOLDENS["pipelines"]
    )
    assert sum(counts.values()) >= 500
    assert sorted(counts) == [0, 1, 2, 3]
    assert min(counts.values()) >= 20


def test_seeds_give_the_descriptions_of_the_file():
    for entry in GOLDENS["pipelines"]:
        assert describe_seed(entry["seed"]) == entry["description"]


@pytest.mark.claim("Order")
@by_seed(ALONE)
def test_pipelines_without_workers_equal_goldens(entry):
    assert_like_grain(entry)


@pytest.mark.claim("Order")
@by_seed(WORKING)
def test_streams_in_one_process_equal_goldens(entry):
    description = entry["description"]
    streams = description["loader"]["workers"]
    loader = build(description, OURS, worker_count=0, streams=streams)
    assert trace(iter(loader), description).elements == entry["elements"]
    for done, state, expected in rests_of(entry):
        iterator = iter(build(description, OURS, worker_count=0))
        iterator.set_state(state)
        assert iterator.get_state() == state
        assert remaining(iterator, description, done) == expected


@pytest.mark.claim("Order")
@pytest.mark.multiprocess
@by_seed(WORKING[::PROCESSES_EVERY])
def test_some_pipelines_with_workers_equal_goldens(entry):
    assert_like_grain(entry)


@pytest.mark.soak
@by_seed(WORKING)
def test_all_pipelines_with_workers_equal_goldens(entry):
    assert_like_grain(entry)


@pytest.mark.soak
@pytest.mark.timeout(300)
@by_seed(GOLDENS["pipelines"])
def test_grain_still_gives_the_goldens(entry):
    assert golden(entry["seed"]) == entry
