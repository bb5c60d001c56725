"""A worker that is stopped or loops forever is reported, and can be replaced."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

KINDS = ["batches", "filtered"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stall", ["stopped", "loop"])
def test_restart_recovers(tmp_path, stall, kind):
    run("faults/stall/restart", kind, stall, tmp_path / "once")


@pytest.mark.claim("Order")
@pytest.mark.parametrize("kind", KINDS)
def test_warning_shows_the_stack_and_spares_the_worker(tmp_path, kind):
    run("faults/stall/warning_with_stack", kind, tmp_path / "go")


def test_stopped_worker_is_reported_and_can_continue(tmp_path):
    run("faults/stall/stopped_and_continued", tmp_path / "once")


def test_every_stalled_try_counts_as_a_death():
    run("faults/stall/every_try_stalls")


def test_slow_start_kills_no_worker():
    run("faults/stall/start_that_takes_long")


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_idle_workers_are_replaced(kind):
    run("faults/stall/idle_and_stopped", kind)


def test_worker_stopped_during_its_start_is_replaced(tmp_path):
    run("faults/stall/stopped_in_its_start", tmp_path / "once")


def test_worker_stuck_in_a_withdrawn_unit_is_replaced(tmp_path):
    run("faults/stall/withdrawn_unit", tmp_path / "in_it")


def test_timeout_none_reports_nothing():
    run("faults/stall/no_timeout")


@pytest.mark.parametrize("face", ["loader", "chain"])
def test_unit_much_slower_than_others_is_reported_once(tmp_path, face):
    run("faults/stall/slow_unit", face, tmp_path / "gate")
