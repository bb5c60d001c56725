"""Processes are killed at random moments, and the output does not change."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess


@pytest.mark.claim("Killed workers")
@pytest.mark.parametrize("kind", ["A", "C"])
def test_output_is_identical_after_200_kills(kind):
    run("faults/kills/random_kills", kind, 200, 7, deadline_s=250)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["A", "C"])
def test_output_is_identical_after_1000_kills(kind, seed):
    run("faults/kills/random_kills", kind, 1000, seed, deadline_s=1000)
