"""Bad records that are skipped or substituted, compared with a model in Python."""

import dataclasses
import json
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from models.on_error import STEPS, Case, loader, plain, turns

WORKERS = (0, 1, 2, 3)
LOGGED = ("key", "index", "stream", "operation", "error", "message", "substitute")


@st.composite
def cases(draw, on_error=("skip", "substitute")):
    records = draw(st.integers(1, 30))
    # Few enough to leave substitutes.
    some = st.frozensets(st.integers(0, records - 1), max_size=3)
    kinds = draw(st.lists(st.sampled_from(STEPS), max_size=3))
    # One flat-map makes at most 4 rows from one; two would make 16.
    steps = [kind(draw(some)) for kind in kinds]
    streams = draw(st.integers(1, 3))
    return Case(
        on_error=draw(st.sampled_from(on_error)),
        records=records,
        bad_reads=draw(some),
        steps=tuple(steps),
        batch=draw(st.sampled_from([0, 0, 1, 2, 3, 7])),
        drop_remainder=draw(st.booleans()),
        streams=streams,
        shuffle=draw(st.booleans()),
        epochs=draw(st.integers(1, 2)),
        together=draw(st.booleans()),
        keys=draw(st.sampled_from(["blocks", "single", "names"])),
    )


def expected(case):
    """Return the outputs, and the log after each output and at the end."""
    outputs, logs, log = [], [], []
    for turn in turns(case):
        log = log + turn.log
        if turn.output is not None:
            outputs.append(plain(turn.output))
            logs.append(log)
    return outputs, [*logs, log]


def logged(path):
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [{name: line[name] for name in LOGGED} for line in lines]


def errors_in(state):
    return json.loads(state).get("gristmill", {}).get("errors", 0)


def modelled(case):
    """Return the result of the model; reject cases that it does not support."""
    try:
        return expected(case)
    except AssertionError:
        hypothesis.reject()


def assert_runs(case, workers):
    outputs, logs = modelled(case)
    with tempfile.NamedTemporaryFile() as file:
        iterator = iter(loader(case, workers, quarantine=file.name))
        for output, log in zip(outputs, logs, strict=False):
            assert plain(next(iterator)) == output
            assert iterator.errors.count == len(log)
            assert errors_in(iterator.get_state()) == len(log)
            assert logged(file.name) == log
        assert next(iterator, None) is None
        assert logged(file.name) == logs[-1]
        assert errors_in(iterator.get_state()) == len(logs[-1])
        last = [dataclasses.asdict(bad) for bad in iterator.errors.last]
        assert last == logs[-1][-10:]


def assert_resumes(case, workers, hops):
    """Stop after each number of outputs from `hops` and resume in another loader."""
    outputs, logs = modelled(case)
    states = [loader(case).__iter__().get_state()]
    iterator = iter(loader(case, workers))
    for output in outputs:
        assert plain(next(iterator)) == output
        states.append(iterator.get_state())
    for at, others in hops(len(outputs)):
        with tempfile.NamedTemporaryFile() as file:
            iterator = iter(loader(case, others, quarantine=file.name))
            iterator.set_state(states[at])
            assert iterator.get_state() == states[at]
            assert [plain(output) for output in iterator] == outputs[at:]
            before = logs[at - 1] if at else []
            assert logged(file.name) == logs[-1][len(before) :]
            assert iterator.errors.count == len(logs[-1])


@pytest.mark.slow
@hypothesis.settings(max_examples=200)
@hypothesis.given(cases())
def test_outputs_log_and_count_match_the_model(case):
    assert_runs(case, 0)


@pytest.mark.multiprocess
@hypothesis.settings(max_examples=20)
@hypothesis.given(cases(), st.sampled_from(WORKERS[1:]))
def test_workers_match_the_model(case, workers):
    assert_runs(case, workers)


@pytest.mark.slow
@hypothesis.settings(max_examples=50)
@hypothesis.given(cases())
def test_every_state_resumes(case):
    assert_resumes(case, 0, lambda count: [(at, 0) for at in range(count + 1)])


@pytest.mark.multiprocess
@hypothesis.settings(max_examples=15)
@hypothesis.given(
    cases(), st.sampled_from(WORKERS), st.sampled_from(WORKERS), st.data()
)
def test_state_resumes_with_other_worker_count(case, before, after, data):
    def somewhere(count):
        return [(data.draw(st.integers(0, count)), after)]

    assert_resumes(case, before, somewhere)
