"""Writes the example states of the installed release, once.

    PYTHONPATH=tests python -m states.generate

Released states are never rewritten, because every later release must read them.
"""

import itertools
import json
import pathlib

import gristmill
from states.pipelines import PIPELINES, as_json, build, literal

FOLDER = pathlib.Path(__file__).parent
POINTS = (0, 1, 3, 1_000)  # Elements before a state; 1,000 exceeds most pipelines.
FOLLOWING = 3


def point_of(text, taken):
    """Return the state after `taken` elements of a pipeline, and the next elements."""
    iterator = iter(build(text))
    taken = len(list(itertools.islice(iterator, taken)))
    state = as_json(iterator.get_state())
    following = [literal(element) for element in itertools.islice(iterator, FOLLOWING)]
    iterator.close()
    return {"taken": taken, "state": state, "next": following}


def write_states(release, folder=FOLDER):
    """Write one file for each pipeline to a new folder of the release.

    Raises:
        FileExistsError: If there are states of this release.
    """
    to = folder / release
    to.mkdir()
    for name, text in PIPELINES.items():
        points = [json.dumps(point_of(text, taken)) for taken in POINTS]
        lines = ",\n    ".join(points)
        kept = f'{{"pipeline": {json.dumps(text)},\n  "points": [\n    {lines}]}}\n'
        (to / f"{name}.json").write_text(kept)


if __name__ == "__main__":
    write_states(gristmill.__version__)
