"""An exception of the user's code arrives as it was, and the rest follows."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess


@pytest.mark.claim("the note on an exception says that frames were cut")
@pytest.mark.claim(
    "An exception of your code keeps its type, where that can be pickled, and names "
    "the operation, the record and the worker."
)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("kind", ["batches", "filtered"])
def test_next_goes_on_after_an_exception_as_without_workers(kind, batch, workers):
    run("faults/errors_in_transforms/goes_on_after_an_exception", kind, batch, workers)


@pytest.mark.claim("an exception of a worker ends its stream")
def test_elements_after_the_failing_one_are_literally_these():
    run("faults/errors_in_transforms/elements_after_the_failing_one")


@pytest.mark.claim(
    "An exception of your code keeps its type, where that can be pickled, and names "
    "the operation, the record and the worker."
)
@pytest.mark.parametrize("workers", [0, 2])
def test_types_of_all_sorts_arrive(workers):
    run("faults/errors_in_transforms/types_of_all_sorts", workers)


@pytest.mark.claim(
    "An exception of your code keeps its type, where that can be pickled, and names "
    "the operation, the record and the worker."
)
def test_exception_whose_type_cannot_be_pickled_keeps_its_words():
    run("faults/errors_in_transforms/type_that_cannot_be_pickled")


@pytest.mark.parametrize("code", [4, 1], ids=["SystemExit", "KeyboardInterrupt"])
def test_exceptions_that_are_no_exceptions_end_the_worker(code):
    run("faults/errors_in_transforms/exits", code)


@pytest.mark.parametrize("workers", [0, 2])
def test_source_and_filter_and_batch_function_are_named(workers):
    run("faults/errors_in_transforms/source_filter_and_batch_function", workers)


def test_outputs_beside_one_that_cannot_be_sent_are_whole():
    # Batches of one: many of them, made in place, share a slot.
    run("faults/errors_in_transforms/element_that_cannot_be_sent")
