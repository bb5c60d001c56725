"""Tests that this release reads and continues the states of every release."""

import itertools
import json
import re

import pytest

import gristmill
from states.generate import FOLLOWING, write_states
from states.pipelines import as_given, as_json, build, literal
from support.places import TESTS

FOLDER = TESTS / "states"
FILES = sorted(FOLDER.glob("*/*.json"))


def case(file):
    """Return a saved file as a test parameter."""
    kept = json.loads(file.read_text())
    workers = re.search(r"worker_count=2|num_workers=2", kept["pipeline"])
    marks = [pytest.mark.multiprocess] if workers else []
    return pytest.param(kept, marks=marks, id=f"{file.parent.name}-{file.stem}")


CASES = [case(file) for file in FILES]


@pytest.mark.parametrize("kept", CASES)
def test_saved_state_continues_as_in_its_release(kept):
    loader = build(kept["pipeline"])
    for point in kept["points"]:
        iterator = iter(loader)
        state = as_given(point["state"], iterator)
        iterator.set_state(state)
        again = iterator.get_state()
        assert as_json(again) == point["state"]
        assert again == state or not isinstance(again, bytes)
        found = [literal(element) for element in itertools.islice(iterator, FOLLOWING)]
        assert found == point["next"]
        iterator.close()


@pytest.mark.parametrize("kept", CASES)
def test_pipeline_writes_the_saved_state(kept):
    loader = build(kept["pipeline"])
    for point in kept["points"]:
        iterator = iter(loader)
        at_end = not point["next"]
        count = None if at_end else point["taken"]
        assert len(list(itertools.islice(iterator, count))) == point["taken"]
        assert as_json(iterator.get_state()) == point["state"]
        iterator.close()


def test_this_release_has_states():
    assert any(file.parent.name == gristmill.__version__ for file in FILES)


def test_states_of_a_release_are_never_overwritten():
    before = {file: file.read_bytes() for file in FILES}
    for release in {file.parent.name for file in FILES}:
        with pytest.raises(FileExistsError):
            write_states(release)
    assert {file: file.read_bytes() for file in FILES} == before
