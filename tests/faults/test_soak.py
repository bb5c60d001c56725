"""Many loaders for half an hour: the same batches, and no growth."""

import pytest

from faults.scripts import run

pytestmark = [pytest.mark.multiprocess, pytest.mark.soak, pytest.mark.timeout(2400)]


def test_many_loaders_do_not_change_or_grow_in_half_an_hour():
    print(run("faults/soak/many_loaders", 1800, 1, deadline_s=2300))
