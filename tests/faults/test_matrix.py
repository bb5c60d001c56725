"""One fault per test is survived, named, or ends the run cleanly, within 3 s."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

# One pipeline per kind: units that any worker can compute, and owned streams.
KINDS = ["batches", "filtered", "single"]


@pytest.mark.claim("The parent hangs if a worker exits with code 0")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("death", ["SIGKILL", "SIGSEGV", "exit-0", "exit-3"])
def test_dead_workers_work_is_done_by_another(tmp_path, death, kind):
    run("faults/matrix/death_of_a_worker", kind, death, tmp_path / "done")


@pytest.mark.claim("The parent hangs if a worker exits with code 0")
@pytest.mark.claim("Killed workers")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("death", "cause"),
    [
        ("SIGKILL", "was killed by SIGKILL (exit code -9)"),
        ("SIGSEGV", "was killed by SIGSEGV (exit code -11)"),
        ("exit-0", "exited with exit code 0"),
        ("exit-3", "exited with exit code 3"),
    ],
)
def test_record_that_always_kills_fails_after_earlier_ones(death, cause, kind):
    run("faults/matrix/record_that_always_kills", kind, death, cause)


def test_max_restarts_limits_the_tries(tmp_path):
    run("faults/matrix/max_restarts", tmp_path / "tries")


@pytest.mark.parametrize("batch", [0, 4])
def test_unpicklable_element_fails_alone(batch):
    run("faults/matrix/element_that_cannot_be_pickled", batch)


@pytest.mark.parametrize("workers", [0, 2])
def test_exception_in_consumer_keeps_the_iterator_exact(workers):
    run("faults/matrix/exception_in_the_consumer", workers)


@pytest.mark.parametrize("busy", [False, True])
def test_break_and_del_end_the_workers_and_keep_the_arrays(busy):
    run("faults/matrix/break_and_del", busy)


@pytest.mark.parametrize("kind", KINDS)
def test_keyboard_interrupt_while_waiting_loses_nothing(tmp_path, kind):
    run("faults/matrix/keyboard_interrupt", kind, tmp_path / "hangs")


@pytest.mark.claim("The interpreter prints messages when it exits")
@pytest.mark.parametrize("how", ["run out", "exit", "exception", "in a thread"])
def test_interpreter_exit_with_workers_is_quiet_and_quick(how):
    run("faults/matrix/interpreter_exit", how)


@pytest.mark.parametrize("kind", ["batches", "filtered"])
def test_user_forks_while_iterating(kind):
    run("faults/matrix/fork_of_the_user", kind)


def test_iterator_outlives_the_thread_that_made_it():
    run("faults/matrix/thread_that_ends")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("victim", ["launcher", "zygote"])
def test_launcher_or_zygote_killed(victim, kind):
    run("faults/matrix/launcher_or_zygote_killed", kind, victim)


def test_sigchld_ignored_and_children_reaped_by_the_user():
    run("faults/matrix/children_reaped_by_the_user")
