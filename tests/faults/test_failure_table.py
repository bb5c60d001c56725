"""The rows of the protocol's failure table (section 8), and which test has each.

| event, moment | test, here where no file is named |
| --- | --- |
| worker dies before `admitted` | `test_worker_that_dies_before_it_is_admitted_*` |
| asleep, or woken and not yet up | `test_idle_workers_*`, `test_wake_up_that_*` |
| at each instruction from the claim to the bell | core/test_scheduler.cpp: |
| | `survives_each_planted_death` |
| mid-write, before NEED | `test_worker_that_dies_while_it_writes` |
| owner of a stream | test_matrix, test_kills: kinds "filtered" and "C" |
| the `max_restarts`+1st time | test_matrix: `test_record_that_always_kills_*` |
| worker stopped or endless | test_stall |
| zygote or launcher dies | test_matrix: `test_launcher_or_zygote_killed`, test_kills, |
| | `test_launcher_or_zygote_killed_during_the_start` |
| thread that made the iterator ends | test_matrix: `test_iterator_of_a_thread_*` |
| parent dies | test_parent, `test_parent_that_dies_*`; stopped: test_launcher |
| signal in `next()` | test_matrix: `test_keyboard_interrupt_*`; test_parent |
| transform raises | test_errors_in_transforms; test_matrix: unpicklable element |
| no memory | test_memory: `test_memory_limit_*`, `test_no_memory_*` |
| break, del, close, exit | test_matrix: `test_break_and_del_*`, `test_interpreter_*` |
| P changes | `test_other_worker_count_ends_the_workers_that_there_were` |
"""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

KINDS = {"batches": "", "filtered": "operations = filtered(*operations)\n"}

# Unpickled in the zygote; every process that this forks then calls `fault`.
AT_BIRTH = """
class AtBirth(g.MapTransform):
    def __init__(self, fault):
        self.fault = fault
    def __setstate__(self, state):
        self.__dict__ = state
        os.register_at_fork(after_in_child=self.fault)
    def map(self, x):
        return x
"""


@pytest.mark.parametrize("kind", KINDS)
def test_worker_that_dies_before_it_is_admitted_is_replaced(tmp_path, kind):
    run(
        AT_BIRTH
        + "operations = [AtBirth(Once(sys.argv[1], lambda: os._exit(9)))]\n"
        + KINDS[kind]
        + """
iterator = iter(loader(operations))
check_rest(iterator, undisturbed(operations), 0)
assert os.path.exists(sys.argv[1])
""",
        tmp_path / "done",
    )


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("os._exit(9)", "exited with exit code 9"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
    ],
)
def test_worker_that_dies_before_it_is_admitted_three_times_is_an_error(
    tmp_path, death, words
):
    run(
        AT_BIRTH
        + f"def die():\n    open(sys.argv[1], 'a').write('x')\n    {death}"
        + """
iterator = iter(loader([AtBirth(die)], workers=1))
error = expect(g.errors.WorkerDied, lambda: next(iterator))
assert "Worker processes cannot start" in str(error) and sys.argv[2] in str(error)
assert "worker_count=0" in str(error)
with open(sys.argv[1]) as file:
    assert file.read() == "xxx"
again = expect(g.errors.WorkerDied, lambda: next(iterator))
assert str(again) == str(error)
""",
        tmp_path / "births",
        words,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_idle_workers_that_die_are_replaced(kind):
    run(
        "operations = [Add()]\n"
        + KINDS[kind]
        + """
reference = undisturbed(operations)
iterator = iter(loader(operations))
seen = [next(iterator)]
for victims in (1, 2):
    pids = family(2)["worker"]
    for pid in pids:
        await_asleep(pid)
    ending = watched(pids[:victims])
    for pid in pids[:victims]:
        os.kill(pid, signal.SIGKILL)
    await_gone(ending)
    seen += [next(iterator) for _ in range(6)]
check_rest(iterator, reference, len(seen))
assert digest(seen) == reference[:len(seen)]
"""
    )


@pytest.mark.parametrize("kind", KINDS)
def test_wake_up_that_went_to_a_dead_worker_reaches_another(kind):
    run(
        "operations = [Add()]\n"
        + KINDS[kind]
        + """
reference = undisturbed(operations)
iterator = iter(loader(operations))
seen = [next(iterator)]
pids = family(2)["worker"]
for pid in pids:
    await_asleep(pid)
    # The kernel takes a wake-up for it; it does nothing with that.
    os.kill(pid, signal.SIGSTOP)
# These were ready; units are published in their place, and nobody takes them.
seen += [next(iterator) for _ in range(5)]
def kill():
    await_parked(threading.main_thread().native_id)
    os.kill(pids[0], signal.SIGKILL)
    os.kill(pids[1], signal.SIGCONT)
threading.Thread(target=kill).start()
check_rest(iterator, reference, len(seen))
assert digest(seen) == reference[:len(seen)]
"""
    )


@pytest.mark.parametrize("size", [10, 3 << 20], ids=["fits", "outgrows"])
@pytest.mark.parametrize("kind", KINDS)
def test_worker_that_dies_while_it_writes(tmp_path, kind, size):
    run(
        """
class Text:
    # Pickled into the slot after the array before it has been written.
    def __init__(self, x, fault):
        self.x, self.fault = x, fault
    def __reduce__(self):
        if self.x == 42:
            self.fault()
        return str, (str(self),)
    def __str__(self):
        return f"text {self.x} " + "-" * int(sys.argv[2])
class Write(g.MapTransform):
    def __init__(self, fault):
        self.fault = fault
    def map(self, x):
        return {"a": np.full(20_000, x), "b": Text(x, self.fault)}
def listing(outputs):
    return [(digest([o["a"]]), str(o["b"])) for o in outputs]
def die():
    os.kill(os.getpid(), signal.SIGKILL)
operations = [Write(Once(sys.argv[1], die))]
"""
        + KINDS[kind]
        + """
iterator = iter(loader(operations, batch=0))
with in_time(10):
    found = listing(iterator)
assert os.path.exists(sys.argv[1])
# Now it may be pickled, or computed, here.
assert found == listing(loader(operations, batch=0, workers=0))
assert any("text 42 " in text for _, text in found)
""",
        tmp_path / "done",
        size,
    )


@pytest.mark.parametrize("victim", ["launcher", "zygote"])
def test_launcher_or_zygote_killed_during_the_start(victim):
    run(
        f"victim = {victim!r}"
        + """
import random
chance = random.Random(3)
reference = undisturbed([Add()])
from faults.toolbox import children
def kill(delay_s):
    pids = []
    for _ in wait_until("a victim"):
        pids = children(os.getpid())
        if victim == "zygote":
            pids = [z for pid in pids for z in children(pid)]
        if pids:
            break
    threading.Event().wait(delay_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[0], signal.SIGKILL)
for number in range(8):
    # Twice: a third time before any worker lives would be an error.
    iterator = iter(loader([Add()]))
    killer = threading.Thread(target=lambda: [kill(chance.random() / 5)] * 2)
    killer.start()
    check_rest(iterator, reference, 0)
    killer.join()
    iterator.close()
"""
    )


def test_zygote_that_always_dies_is_an_error():
    run(
        """
        class Deadly(g.MapTransform):
            def __setstate__(self, state):
                os.kill(os.getpid(), signal.SIGSEGV)
            def map(self, x):
                return x
        deadly = Deadly()
        deadly.state = 1
        iterator = iter(loader([deadly]))
        error = expect(g.errors.WorkerDied, lambda: next(iterator))
        assert "ended 3 times before a worker had started" in str(error), error
        assert "signal 11" in str(error), error
        # The launcher is unharmed.
        assert digest(loader([Add()])) == undisturbed([Add()])
        """
    )


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_parent_that_dies_while_the_zygote_imports(stopped):
    run(
        """
        from faults.scripts import start
        stopped = sys.argv[1] == "True"
        with start('''
        class Slow(g.MapTransform):
            def __setstate__(self, state):
                print("importing", os.getpid(), flush=True)
                threading.Event().wait()
            def map(self, x):
                return x
        slow = Slow()
        slow.state = 1
        next(iter(loader([slow])))
        ''') as script:
            assert script.stdout.readline().startswith("importing")
            pids = descendants(script.pid)
            assert len(pids) == 2
            ending = watched(pids)
            if stopped:
                os.kill(pids[0], signal.SIGSTOP)
            script.kill()
            await_gone(ending)
        """,
        stopped,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_memory_in_a_transform_is_an_exception_like_others(kind):
    run(
        """
def ask():
    return np.empty(1 << 60, np.uint8)
operations = [At(42, ask)]
"""
        + KINDS[kind]
        + """
iterator = iter(loader(operations))
seen = []
def drain():
    for batch in iterator:
        seen.append(batch)
error = expect(np._core._exceptions._ArrayMemoryError, drain)
assert isinstance(error, MemoryError) and "record 42" in str(error.__notes__)
drain()
assert len(seen) >= 14
"""
    )


def test_other_worker_count_ends_the_workers_that_there_were():
    run(
        """
        reference = undisturbed([Add()], streams=3)
        three = iter(loader([Add()], workers=3, streams=3))
        for _ in range(5):
            next(three)
        state = three.get_state()
        three.close()
        iterator = iter(loader([Add()], workers=2, streams=None))
        next(iterator)
        ending = watched(family(2)["worker"])
        iterator.set_state(state)
        await_gone(ending)
        check_rest(iterator, reference, 5)
        """
    )
