"""Half an hour of everything at once: the same batches, and nothing grows."""

import pytest

from faults.scripts import run

pytestmark = [pytest.mark.multiprocess, pytest.mark.soak, pytest.mark.timeout(2400)]


def test_many_loaders_give_the_same_and_hold_no_more_after_half_an_hour():
    print(run("faults/soak/many_loaders", 1800, 1, deadline_s=2300))
