"""Ranks and processes of a host's pool are killed; the output does not change."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("mode", ["deal", "broadcast"])
def test_output_is_identical_after_kills_of_ranks_and_pool(mode):
    run("faults/host_kills/random_kills", mode, 2, 2, 7, deadline_s=100)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", ["deal", "broadcast"])
def test_output_is_identical_after_100_kills_of_ranks_and_pool(mode):
    run("faults/host_kills/random_kills", mode, 50, 50, 7, deadline_s=1000)
