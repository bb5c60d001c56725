"""Grain's tutorials, told again as tests that run with both libraries.

What a tutorial prints is written out in its test. Gristmill must give it, and so must
Grain: the tests that take `grain` run with each of them in turn.
"""

import importlib

import numpy as np
import pytest


@pytest.fixture(params=["gristmill", "grain"])
def grain(request):
    """The library under test, as a tutorial names it."""
    if request.param == "grain":
        from absl import flags

        flags.FLAGS.mark_as_parsed()
    return importlib.import_module(request.param)


@pytest.fixture
def grain_python(grain):
    """What a tutorial imports as ``grain.python``."""
    return importlib.import_module(f"{grain.__name__}.python")


@pytest.fixture
def workers(grain):
    """How many workers to ask for where a tutorial asks for `count`.

    Grain's take seconds to start, so it is asked for the same stream without any.
    """
    return lambda count: count if grain.__name__ == "gristmill" else 0


class Digits:
    """Handwritten digits as records, in the place of a TFDS data source."""

    def __init__(self):
        from sklearn.datasets import load_digits  # Slow, and no use to workers.

        digits = load_digits()
        self._images = digits.images.astype(np.uint8)[..., None]
        self._labels = digits.target

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, index):
        return {"image": self._images[index], "label": int(self._labels[index])}

    def __repr__(self):
        return "Digits()"


@pytest.fixture(scope="session")
def digits():
    """1,797 records ``{"image": uint8[8, 8, 1], "label": int}``."""
    return Digits()
