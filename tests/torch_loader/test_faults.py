"""Tests of torch loaders whose workers are killed, starved or abandoned."""

import pytest

from faults import scripts
from faults.prepared import run
from faults.scripts import can_mount, with_shm_of_its_own

pytestmark = pytest.mark.multiprocess

CONTEXTS = [None, "launcher"]


@pytest.mark.parametrize("context", CONTEXTS)
def test_killed_worker_raises_torch_error(context):
    run("torch_loader/faults/killed_worker", context or "")


def test_exited_worker_raises_torch_error():
    run("torch_loader/faults/worker_that_exits")


@pytest.mark.parametrize("context", CONTEXTS)
def test_killed_workers_are_replaced_with_max_restarts(context):
    run("torch_loader/faults/killed_and_replaced", context or "")


def test_replaced_worker_continues_iterable_dataset():
    run("torch_loader/faults/replaced_in_an_iterable_dataset")


def test_batch_that_cannot_be_sent_fails_alone():
    run("torch_loader/faults/batch_that_cannot_be_sent")


@pytest.mark.parametrize("context", CONTEXTS)
def test_unpicklable_batch_fails_alone(context):
    run("torch_loader/faults/batch_that_cannot_be_pickled", context or "")


@pytest.mark.parametrize("context", CONTEXTS)
def test_busy_worker_is_killed_with_its_iterator(context):
    run("torch_loader/faults/busy_worker", context or "")


@pytest.mark.parametrize("options", ["size=64m", "size=64m,ro"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_large_batches_do_not_use_dev_shm(options, context):
    is_private = can_mount()
    scripts.run(
        "torch_loader/faults/large_batches",
        *(context or "", is_private),
        within=with_shm_of_its_own(options) if is_private else (),
    )


def test_kept_batches_take_no_descriptors():
    run("torch_loader/faults/kept_batches")


@pytest.mark.parametrize("context", CONTEXTS)
def test_iterator_leaves_no_process(context):
    run("torch_loader/faults/no_process_is_left", context or "")


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("dataset", ["Squares", "Holds"])
def test_no_worker_outlives_its_parent(context, dataset):
    run("torch_loader/faults/killed_parent", dataset, context or "")


def test_interrupted_iterator_continues():
    run("torch_loader/faults/interrupted_iterator")


def test_exit_with_live_iterator_is_clean_and_silent():
    assert run("torch_loader/faults/exit_with_a_live_iterator") == "[0]\n"


def test_idle_workers_of_live_iterator_exit_with_program():
    assert run("torch_loader/faults/idle_workers_at_an_exit") == "[0, 1]\n[0, 0]\n"


@pytest.mark.parametrize("context", CONTEXTS)
def test_forked_child_that_drops_iterator_keeps_workers(context):
    run("torch_loader/faults/fork_that_drops_an_iterator", context or "")


def test_requests_do_not_exceed_prefetch_factor():
    run("torch_loader/faults/asked_for_no_more")


def test_many_loaders_at_once_are_independent():
    run("torch_loader/faults/many_loaders")


def test_environment_has_no_descriptors_of_ours():
    """A program started by a dataset must inherit nothing that keeps workers alive."""
    run("torch_loader/faults/inherited_descriptors")


def test_batch_kept_by_collate_fn_is_not_overwritten():
    run("torch_loader/faults/collate_function_that_keeps")
