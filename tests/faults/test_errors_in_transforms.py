"""An exception of user code arrives unchanged, and the remaining outputs follow."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess


@pytest.mark.claim("The note on an exception only says that frames were removed")
@pytest.mark.claim("Errors")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("kind", ["batches", "filtered"])
def test_next_continues_after_error_as_without_workers(kind, batch, workers):
    run("faults/errors_in_transforms/goes_on_after_an_exception", kind, batch, workers)


@pytest.mark.claim("An exception in a worker ends its stream")
def test_elements_after_the_failing_one_are_exact():
    run("faults/errors_in_transforms/elements_after_the_failing_one")


@pytest.mark.claim("Errors")
@pytest.mark.parametrize("workers", [0, 2])
def test_unusual_exception_types_arrive(workers):
    run("faults/errors_in_transforms/types_of_all_sorts", workers)


@pytest.mark.claim("Errors")
def test_unpicklable_exception_type_keeps_its_text():
    run("faults/errors_in_transforms/type_that_cannot_be_pickled")


@pytest.mark.parametrize("code", [4, 1], ids=["SystemExit", "KeyboardInterrupt"])
def test_system_exit_and_interrupt_end_the_worker(code):
    run("faults/errors_in_transforms/exits", code)


@pytest.mark.parametrize("workers", [0, 2])
def test_error_names_source_filter_and_batch_function(workers):
    run("faults/errors_in_transforms/source_filter_and_batch_function", workers)


def test_outputs_next_to_unsendable_one_are_whole():
    # Many batches of one element share a slot, because they are built in place.
    run("faults/errors_in_transforms/element_that_cannot_be_sent")
