"""Memory limits, few descriptors, kept batches, and no growth over many starts."""

import pytest

from faults.scripts import can_mount, run, with_shm_of_its_own

pytestmark = pytest.mark.multiprocess


@pytest.mark.claim("Memory")
@pytest.mark.skipif(not can_mount(), reason="unshare -m is not permitted")
@pytest.mark.parametrize("options", ["size=64m", "ro"])
def test_dev_shm_is_not_needed(options):
    run("faults/memory/without_dev_shm", within=with_shm_of_its_own(options))


@pytest.mark.claim("Memory")
@pytest.mark.parametrize("every", [1, 7])
def test_5000_batches_are_kept_with_128_descriptors(every):
    run("faults/memory/kept_batches", every)


@pytest.mark.claim("Memory")
def test_arrays_outlive_everything_and_are_writable():
    run("faults/memory/arrays_outlive_everything")


@pytest.mark.claim("Memory")
@pytest.mark.parametrize("kind", ["batches", "filtered"])
def test_memory_limit_error_names_needed_and_kept_bytes(kind):
    run("faults/memory/memory_limit", kind)


@pytest.mark.parametrize("limit_mib", [1, 2])
def test_one_output_larger_than_the_memory_limit(limit_mib):
    run("faults/memory/output_larger_than_the_limit", limit_mib)


@pytest.mark.parametrize(
    "starts", [60, pytest.param(200, marks=pytest.mark.soak)], ids=str
)
def test_nothing_grows_over_many_starts(starts):
    run("faults/memory/growth", starts, deadline_s=200)
