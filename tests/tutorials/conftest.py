"""Grain's tutorials, rewritten as tests that run with both libraries.

Each test contains the output that its tutorial prints. Gristmill and Grain must both
produce it: tests that take `grain` run once with each.
"""

import importlib

import numpy as np
import pytest


@pytest.fixture(params=["gristmill", "grain"])
def grain(request):
    """Import the library under test."""
    if request.param == "grain":
        from absl import flags

        flags.FLAGS.mark_as_parsed()
    return importlib.import_module(request.param)


@pytest.fixture
def grain_python(grain):
    """Import the module that a tutorial calls ``grain.python``."""
    return importlib.import_module(f"{grain.__name__}.python")


@pytest.fixture
def workers(grain):
    """Return a function from a tutorial's worker count to the count to use.

    Workers of Grain take seconds to start; without any, the output is the same.
    """
    return lambda count: count if grain.__name__ == "gristmill" else 0


class Digits:
    """A source of handwritten digits, in place of a TFDS data source."""

    def __init__(self):
        from sklearn.datasets import load_digits  # Slow, and not needed by workers.

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
    """Return 1,797 records ``{"image": uint8[8, 8, 1], "label": int}``."""
    return Digits()
