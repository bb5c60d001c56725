"""A torch loader whose workers are killed, starved or left alone."""

import pytest

from faults import scripts
from faults.prepared import run
from faults.scripts import can_mount, with_shm_of_its_own

pytestmark = pytest.mark.multiprocess

CONTEXTS = [None, "launcher"]


@pytest.mark.parametrize("context", CONTEXTS)
def test_killed_worker_is_torchs_error(context):
    run("torch_loader/faults/killed_worker", context or "")


def test_worker_that_exits_is_torchs_error():
    run("torch_loader/faults/worker_that_exits")


@pytest.mark.parametrize("context", CONTEXTS)
def test_killed_workers_are_replaced_where_restarts_are_allowed(context):
    run("torch_loader/faults/killed_and_replaced", context or "")


def test_replaced_worker_goes_on_in_an_iterable_dataset():
    run("torch_loader/faults/replaced_in_an_iterable_dataset")


def test_batch_that_cannot_be_sent_is_an_error_at_its_turn():
    run("torch_loader/faults/batch_that_cannot_be_sent")


@pytest.mark.claim(
    "A batch that cannot be pickled, or unpickled, is one error at its turn; torch's "
    "loader hangs."
)
@pytest.mark.parametrize("context", CONTEXTS)
def test_batch_that_cannot_be_pickled_is_an_error_at_its_turn(context):
    run("torch_loader/faults/batch_that_cannot_be_pickled", context or "")


@pytest.mark.claim(
    "Workers that have nothing to do leave at once, and what iterates there is closed."
)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_busy_worker_is_killed_when_its_iterator_goes(context):
    run("torch_loader/faults/busy_worker", context or "")


@pytest.mark.claim(
    "Batches from workers view Gristmill's shared memory, which uses no /dev/shm and "
    "one descriptor, however many you keep."
)
@pytest.mark.parametrize("options", ["size=64m", "size=64m,ro"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_large_batches_need_no_shared_memory_of_the_system(options, context):
    is_private = can_mount()
    scripts.run(
        "torch_loader/faults/large_batches",
        *(context or "", is_private),
        within=with_shm_of_its_own(options) if is_private else (),
    )


@pytest.mark.claim(
    "Batches from workers view Gristmill's shared memory, which uses no /dev/shm and "
    "one descriptor, however many you keep."
)
def test_batches_that_are_kept_take_no_descriptors():
    run("torch_loader/faults/kept_batches")


@pytest.mark.claim(
    "Workers that have nothing to do leave at once, and what iterates there is closed."
)
@pytest.mark.parametrize("context", CONTEXTS)
def test_no_process_is_left_of_an_iterator(context):
    run("torch_loader/faults/no_process_is_left", context or "")


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("dataset", ["Squares", "Holds"])
def test_no_worker_outlives_its_parent(context, dataset):
    run("torch_loader/faults/killed_parent", dataset, context or "")


def test_interrupted_iterator_goes_on():
    run("torch_loader/faults/interrupted_iterator")


def test_an_exit_with_a_live_iterator_is_clean_and_silent():
    assert run("torch_loader/faults/exit_with_a_live_iterator") == "[0]\n"


@pytest.mark.claim(
    "Workers that have nothing to do leave at once, and what iterates there is closed."
)
def test_idle_workers_of_a_live_iterator_leave_by_themselves_at_an_exit():
    assert run("torch_loader/faults/idle_workers_at_an_exit") == "[0, 1]\n[0, 0]\n"


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_fork_that_drops_an_iterator_leaves_its_workers_alone(context):
    run("torch_loader/faults/fork_that_drops_an_iterator", context or "")


def test_workers_are_asked_for_no_more_than_prefetch_factor_says():
    run("torch_loader/faults/asked_for_no_more")


def test_many_loaders_at_once_do_not_meet():
    run("torch_loader/faults/many_loaders")


def test_the_environment_has_no_descriptors_of_ours():
    """A program that a dataset starts inherits nothing that keeps us alive."""
    run("torch_loader/faults/inherited_descriptors")


def test_what_a_collate_function_keeps_of_a_batch_stays_as_it_is():
    run("torch_loader/faults/collate_function_that_keeps")
