"""The user's process is killed or signalled."""

import signal

import pytest

from faults.scripts import can_mount, run, with_shm_of_its_own

pytestmark = pytest.mark.multiprocess

# Says so once it has begun; what it does next is left to chance.
ITERATES = """
print("begun", flush=True)
iterator = iter(loader([Add()], records=10_000_000, batch=64))
for number, batch in enumerate(iterator):
    if number == 20:
        print("in the middle", flush=True)
"""
# Starts it, lets it run for a random time, kills it, and looks what is left.
KILLS = """
import random
from faults.scripts import start
number, rounds, seed, text = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
chance = random.Random(seed)

def await_line(script, wanted):
    found = script.stdout.readline()
    assert found == wanted, (found, script.poll(), script.stderr.read())

for _ in range(rounds):
    with start(text) as script:
        await_line(script, "begun\\n")
        if chance.random() < 0.6:
            await_line(script, "in the middle\\n")
        threading.Event().wait(chance.random() * 0.3)
        ending = watched([script.pid, *descendants(script.pid)])
        script.send_signal(number)
        await_gone(ending)
        assert script.wait(2) != 0
    # Others may use it where it is not this script's own.
    assert not private or os.listdir("/dev/shm") == []
assert digest(loader([Add()])) == undisturbed([Add()])
"""


def kill_at_random(number: signal.Signals, rounds: int, seed: int) -> None:
    private = can_mount()
    run(
        f"private = {private}\n" + KILLS,
        int(number), rounds, seed, ITERATES,
        command=with_shm_of_its_own() if private else (),
        deadline_s=60 + 2 * rounds,
    )  # fmt: skip


@pytest.mark.claim("a killed parent leaves workers and shared memory behind")
@pytest.mark.claim(
    "When your process dies, the workers and all shared memory go with it."
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_killed_parent_and_a_second_start_works(number):
    kill_at_random(number, rounds=3, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_many_killed_parents(number):
    kill_at_random(number, rounds=40, seed=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_group_leaves_the_workers_to_the_parent(number):
    run(
        """
        seen = []
        def handler(number, frame):
            seen.append(number)
        number = int(sys.argv[1])
        signal.signal(number, handler)
        reference = undisturbed([Add()], records=4000)
        iterator = iter(loader([Add()], records=4000))
        next(iterator)
        before = watched(sum(family(2).values(), []))
        os.killpg(0, number)
        second = next(iterator)
        assert seen == [number]
        assert digest([second]) == reference[1:2]
        state = iterator.get_state()
        check_rest(iterator, reference, 2)
        fresh = iter(loader([Add()], records=4000))
        fresh.set_state(state)
        check_rest(fresh, reference, 2)
        assert signal.getsignal(number) is handler
        import select
        assert not select.select(before, [], [], 0)[0], "one has died"
        """,
        int(number),
    )


def test_default_signal_of_the_group_can_be_survived_for_a_checkpoint():
    run(
        """
        reference = undisturbed([Add()], records=4000)
        iterator = iter(loader([Add()], records=4000))
        seen = []
        def drain():
            for batch in iterator:
                seen.append(batch)
                if len(seen) == 5:
                    os.killpg(0, signal.SIGINT)
        expect(KeyboardInterrupt, drain)
        seen.append(next(iterator))
        assert digest(seen) == reference[:len(seen)]
        fresh = iter(loader([Add()], records=4000))
        fresh.set_state(iterator.get_state())
        check_rest(fresh, reference, len(seen))
        """
    )


def test_signal_handlers_are_nobodys_but_the_users():
    run(
        """
        def all_handlers():
            return {n: signal.getsignal(n) for n in signal.valid_signals()}
        def dispositions():
            with open("/proc/self/status") as file:
                return [line for line in file if line.startswith("Sig")
                        and not line.startswith("SigQ")]
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        before = all_handlers(), dispositions()
        iterator = iter(loader([Add()]))
        next(iterator)
        assert (all_handlers(), dispositions()) == before
        list(iterator)
        iterator.close()
        assert (all_handlers(), dispositions()) == before
        """
    )


def test_programs_that_a_worker_runs_can_be_interrupted():
    run(
        """
        import subprocess
        class Run(g.MapTransform):
            def map(self, x):
                text = "import signal; print(signal.getsignal(2).__name__)"
                out = subprocess.run([sys.executable, "-S", "-c", text],
                                     capture_output=True, text=True)
                return out.stdout.strip()
        found = list(loader([Run()], records=2, batch=0))
        assert found == ["default_int_handler"] * 2, found
        """
    )
