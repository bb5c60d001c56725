"""The user's process is killed or signalled."""

import signal

import pytest

from faults.scripts import can_mount, run, with_shm_of_its_own

pytestmark = pytest.mark.multiprocess


def kill_at_random(number: signal.Signals, rounds: int, seed: int) -> None:
    private = can_mount()
    run(
        "faults/parent/kills_at_random",
        *(int(number), rounds, seed, private),
        within=with_shm_of_its_own() if private else (),
        deadline_s=60 + 2 * rounds,
    )


@pytest.mark.claim("A killed parent leaves its workers and shared memory behind")
@pytest.mark.claim("Killed workers")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_parent_leaves_nothing_behind(number):
    kill_at_random(number, rounds=3, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_many_killed_parents_leave_nothing_behind(number):
    kill_at_random(number, rounds=40, seed=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_group_is_handled_by_the_parent(number):
    run("faults/parent/signal_to_the_group", int(number))


def test_default_signal_can_be_survived_for_a_checkpoint():
    run("faults/parent/interrupt_of_the_group")


def test_signal_handlers_of_the_user_stay():
    run("faults/parent/signal_handlers")


def test_programs_run_by_a_worker_can_be_interrupted():
    run("faults/parent/programs_of_a_worker")
