"""Workers of mp_prefetch are killed at random, and the output does not change."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize(
    "chain", ["batches", "absent", "counted", "states", "mixed", "packing"]
)
def test_output_and_states_are_identical_after_many_kills(chain):
    run("faults/prefetch_kills/random_kills", chain)


@pytest.mark.parametrize("kind", ["A", "C"])
def test_deadly_element_is_raised_in_its_place(kind, tmp_path):
    run("faults/prefetch_kills/deadly_element", kind, tmp_path / "marks")


def test_nothing_is_left_after_exit_without_close():
    run("faults/prefetch_kills/left_after", "exit")


def test_nothing_is_left_after_close():
    run("faults/prefetch_kills/left_after", "close")


def test_no_main_guard_is_needed():
    out = run("faults/prefetch_kills/without_main_guard")
    assert out.strip() == "[0, 10, 20, 30, 40, 50]"
