"""Rows of the protocol's failure table (section 8) that no other file tests.

| event, moment | test (in this file unless another is named) |
| --- | --- |
| worker dies before `admitted` | `test_worker_dead_before_admission_*`, |
| | `test_three_deaths_before_admission_*` |
| asleep, or woken and not yet up | `test_dead_idle_workers_*`, `test_lost_wake_up_*` |
| at each instruction from the claim to the bell | core/schedule/test_scheduler.cpp: |
| | `test_worker_exits_lose_no_output` |
| mid-write, before NEED | `test_worker_dies_while_writing` |
| owner of a stream | test_matrix, test_kills: kinds "filtered" and "C" |
| the `max_restarts`+1st time | test_matrix: `test_record_that_always_kills_*` |
| worker stopped or endless | test_stall |
| zygote or launcher dies | test_matrix: `test_launcher_or_zygote_killed`, test_kills, |
| | `test_launcher_or_zygote_killed_during_the_start` |
| thread that made the iterator ends | test_matrix: `test_iterator_outlives_*` |
| parent dies | test_parent, `test_parent_dies_*`; stopped: test_launcher |
| signal in `next()` | test_matrix: `test_keyboard_interrupt_*`; test_parent |
| transform raises | test_errors_in_transforms; test_matrix: unpicklable element |
| no memory | `test_no_memory_*`; test_memory: `test_memory_limit_*` |
| break, del, close, exit | test_matrix: `test_break_and_del_*`, `test_interpreter_*` |
| P changes | `test_changed_worker_count_ends_old_workers` |
"""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

KINDS = ["batches", "filtered"]


@pytest.mark.parametrize("kind", KINDS)
def test_worker_dead_before_admission_is_replaced(tmp_path, kind):
    run("faults/failure_table/death_before_admission", kind, tmp_path / "done")


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("exit", "exited with exit code 9"),
        ("kill", "was killed by SIGKILL"),
    ],
)
def test_three_deaths_before_admission_are_an_error(tmp_path, death, words):
    run(
        "faults/failure_table/three_deaths_before_admission",
        tmp_path / "starts",
        death,
        words,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_dead_idle_workers_are_replaced(kind):
    run("faults/failure_table/idle_workers_that_die", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_lost_wake_up_reaches_another_worker(kind):
    run("faults/failure_table/lost_wake_up", kind)


@pytest.mark.parametrize("size", [10, 3 << 20], ids=["fits", "outgrows"])
@pytest.mark.parametrize("kind", KINDS)
def test_worker_dies_while_writing(tmp_path, kind, size):
    run("faults/failure_table/death_while_writing", kind, tmp_path / "done", size)


@pytest.mark.parametrize("victim", ["launcher", "zygote"])
def test_launcher_or_zygote_killed_during_the_start(victim):
    run("faults/failure_table/death_during_the_start", victim)


def test_zygote_that_always_dies_is_an_error():
    run("faults/failure_table/zygote_that_always_dies")


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_parent_dies_while_the_zygote_imports(stopped):
    run("faults/failure_table/parent_that_dies_during_the_import", stopped)


@pytest.mark.parametrize("kind", KINDS)
def test_no_memory_in_a_transform_is_an_ordinary_error(kind):
    run("faults/failure_table/no_memory", kind)


def test_changed_worker_count_ends_old_workers():
    run("faults/failure_table/other_worker_count")
