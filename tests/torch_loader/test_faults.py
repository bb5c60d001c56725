"""A torch loader whose workers are killed, starved or left alone."""

import pytest

from faults.scripts import can_mount, run, with_shm_of_its_own

pytestmark = pytest.mark.multiprocess

LOADER = """
import torch
from gristmill.torch import DataLoader

class Squares:
    def __init__(self, length=64, shape=(4,)):
        self.length, self.shape = length, shape
    def __len__(self):
        return self.length
    def __getitem__(self, i):
        return torch.full(self.shape, i * i)

def values(batches):
    return [int(batch.reshape(-1)[0]) for batch in batches]

def make(dataset=None, **options):
    options.setdefault("num_workers", 2)
    return DataLoader(dataset or Squares(), **options)
"""
SQUARES = [i * i for i in range(64)]
CONTEXTS = [None, "launcher"]


def script(text: str, *arguments: object, **options) -> str:
    return run(f"{LOADER}\nSQUARES = {SQUARES}\n{text}", *arguments, **options)


@pytest.mark.parametrize("context", CONTEXTS)
def test_killed_worker_is_torchs_error(context):
    script(
        f"""
if __name__ == "__main__":
    iterator = iter(make(multiprocessing_context={context!r}))
    next(iterator)
    pid = iterator._workers[1].pid
    os.kill(pid, signal.SIGKILL)
    error = expect(g.errors.WorkerDied, lambda: values(iterator))
    assert isinstance(error, RuntimeError)
    assert str(error) == f"DataLoader worker (pid(s) {{pid}}) exited unexpectedly"
    assert str(error.__cause__) == (
        f"DataLoader worker (pid {{pid}}) is killed by signal: Killed. "
    )
"""
    )


def test_worker_that_exits_is_torchs_error():
    script(
        """
class Exits(Squares):
    def __getitem__(self, i):
        if i == 3:
            os._exit(7)
        return super().__getitem__(i)

iterator = iter(make(Exits(), num_workers=1))
assert values([next(iterator) for _ in range(3)]) == SQUARES[:3]
error = expect(g.errors.WorkerDied, lambda: next(iterator))
assert "exit code 7. Details are lost due to multiprocessing" in str(error.__cause__)
"""
    )


@pytest.mark.parametrize("context", CONTEXTS)
def test_killed_workers_are_replaced_where_restarts_are_allowed(context):
    script(
        f"""
if __name__ == "__main__":
    loader = make(multiprocessing_context={context!r}, max_restarts=3)
    iterator = iter(loader)
    given = []
    for turn in range(64):
        given.append(next(iterator))
        if turn % 20 == 5:
            os.kill(iterator._workers[turn // 20 % 2].pid, signal.SIGKILL)
    assert values(given) == SQUARES
    expect(StopIteration, lambda: next(iterator))
"""
    )


def test_replaced_worker_goes_on_in_an_iterable_dataset():
    script(
        """
class Counts(torch.utils.data.IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        for i in range(50):
            yield torch.tensor([worker, i])

iterator = iter(make(Counts(), batch_size=2, max_restarts=2))
given = []
for turn in range(50):
    given.append(next(iterator).tolist())
    if turn in (7, 30):
        os.kill(iterator._workers[turn % 2].pid, signal.SIGKILL)
wanted = [[[w, i], [w, i + 1]] for i in range(0, 50, 2) for w in (0, 1)]
assert given == wanted
"""
    )


def test_batch_that_cannot_be_sent_is_an_error_at_its_turn():
    script(
        """
class Refuses(Squares):
    def __getitem__(self, i):
        made = super().__getitem__(i)
        return (made.float().requires_grad_() * 2) if i == 5 else made

iterator = iter(make(Refuses(), batch_size=None))
assert values([next(iterator) for _ in range(5)]) == SQUARES[:5]
error = expect(RuntimeError, lambda: next(iterator))
assert "non-leaf" in str(error)
assert values(iterator) == SQUARES[6:]
"""
    )


@pytest.mark.claim(
    "A batch that cannot be pickled is an error at its turn; torch's loader hangs."
)
@pytest.mark.parametrize("context", CONTEXTS)
def test_batch_that_cannot_be_pickled_is_an_error_at_its_turn(context):
    script(
        f"""
class Locks(Squares):
    def __getitem__(self, i):
        return threading.Lock() if i == 5 else super().__getitem__(i)

loader = make(Locks(), batch_size=None, multiprocessing_context={context!r})
iterator = iter(loader)
assert values([next(iterator) for _ in range(5)]) == SQUARES[:5]
error = expect(TypeError, lambda: next(iterator))
assert "cannot pickle" in str(error)
assert values(iterator) == SQUARES[6:]
"""
    )


@pytest.mark.claim(
    "Workers that have nothing to do leave at once; busy ones are killed when the "
    "iterator goes, where torch waits up to 5 seconds for each."
)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_busy_worker_is_killed_when_its_iterator_goes(context):
    script(
        f"""
class Hangs(Squares):
    def __getitem__(self, i):
        if i == 3:
            threading.Event().wait()
        return super().__getitem__(i)

iterator = iter(make(Hangs(), multiprocessing_context={context!r}))
kept = next(iterator)
for _ in wait_until("a worker that waits"):
    ending = watched(worker.pid for worker in iterator._workers)
    if len(ending) == 2:
        break
with in_time():
    del iterator
    await_gone(ending)
assert values([kept]) == SQUARES[:1]
"""
    )


@pytest.mark.claim(
    "Batches from workers view Gristmill's shared memory, which uses no /dev/shm and "
    "one descriptor, however many you keep."
)
@pytest.mark.parametrize("options", ["size=64m", "size=64m,ro"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_large_batches_need_no_shared_memory_of_the_system(options, context):
    if not can_mount():
        options, command = "", ()
    else:
        command = with_shm_of_its_own(options)
    script(
        f"""
dataset = Squares(40, (8 << 20,))  # 64 MiB a batch
loader = make(dataset, multiprocessing_context={context!r}, memory_limit=1 << 30)
for number, batch in enumerate(loader):
    assert batch.shape == (1, 8 << 20) and int(batch[0, -1]) == number**2
    assert not {bool(options)} or os.listdir("/dev/shm") == []
""",
        command=command,
    )


@pytest.mark.claim(
    "Batches from workers view Gristmill's shared memory, which uses no /dev/shm and "
    "one descriptor, however many you keep."
)
def test_batches_that_are_kept_take_no_descriptors():
    script(
        """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
open_now = lambda: len(os.listdir("/proc/self/fd"))
iterator = iter(make(Squares(3000, (5000,)), batch_size=2))
kept = [next(iterator)]
before = open_now()
kept += iterator
assert open_now() <= before
assert values(kept) == [i * i for i in range(0, 3000, 2)]
"""
    )


@pytest.mark.claim(
    "Workers that have nothing to do leave at once; busy ones are killed when the "
    "iterator goes, where torch waits up to 5 seconds for each."
)
@pytest.mark.parametrize("leave", ["break", "del", "exhaust", "raise"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_no_process_is_left_of_an_iterator(leave, context):
    script(
        f"""
import gc
def some():
    loader = make(multiprocessing_context={context!r})
    iterator = iter(loader)
    next(iterator)
    pids = [worker.pid for worker in iterator._workers]
    ending = watched(pids)
    if {leave!r} == "raise":
        with contextlib.suppress(ZeroDivisionError):
            for batch in iterator:
                1 / 0
    if {leave!r} == "exhaust":
        for batch in iterator:
            pass
    return ending
ending = some()
gc.collect()
await_gone(ending)
"""
    )


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("dataset", ["Squares", "Holds"])
def test_no_worker_outlives_its_parent(context, dataset):
    text = f"""
import re

class Holds(Squares):
    \"\"\"After the first samples a worker keeps the interpreter to itself.\"\"\"
    def __getitem__(self, i):
        if i > 1:
            re.match("(a+)+$", "a" * 40 + "b")
        return super().__getitem__(i)

if __name__ == "__main__":
    dataset = {dataset}(10**6)
    iterator = iter(make(dataset, multiprocessing_context={context!r}))
    next(iterator)
    print(*[worker.pid for worker in iterator._workers], flush=True)
    sys.stdin.read()
"""
    script(
        """
from faults.scripts import start
with start(sys.argv[1]) as child:
    ending = watched(map(int, child.stdout.readline().split()))
    assert len(ending) == 2
    child.kill()
    await_gone(ending)
""",
        LOADER + text,
    )


def test_interrupted_iterator_goes_on():
    script(
        """
class Slow(Squares):
    def __getitem__(self, i):
        if i == 2:
            os.kill(os.getppid(), 0)
            threading.Event().wait(0.5)
        return super().__getitem__(i)

iterator = iter(make(Slow()))
given = [next(iterator) for _ in range(2)]
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(InterruptedError()))
signal.setitimer(signal.ITIMER_REAL, 0.05)
expect(InterruptedError, lambda: next(iterator))
assert values(given + list(iterator)) == SQUARES
"""
    )


def test_an_exit_with_a_live_iterator_is_clean_and_silent():
    text = LOADER + "iterator = iter(make())\nprint(values([next(iterator)]))\n"
    found = run(text, bare=True)
    assert found == "[0]\n"


@pytest.mark.claim(
    "Workers that have nothing to do leave at once; busy ones are killed when the "
    "iterator goes, where torch waits up to 5 seconds for each."
)
def test_idle_workers_of_a_live_iterator_leave_by_themselves_at_an_exit():
    text = f"""{LOADER}
import atexit, multiprocessing
atexit.register(lambda: print([worker.exitcode for worker in workers]))
iterator = iter(make())
workers = multiprocessing.active_children()
print(values(next(iterator) for _ in range(2)))
"""
    assert run(text, bare=True) == "[0, 1]\n[0, 0]\n"


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_fork_that_drops_an_iterator_leaves_its_workers_alone(context):
    script(
        f"""
class Slow(Squares):
    def __getitem__(self, i):
        if i == 2:
            threading.Event().wait(1.5)  # Who is told to leave is killed by then.
        return super().__getitem__(i)

iterator = iter(make(Slow(), multiprocessing_context={context!r}))
given = [next(iterator) for _ in range(2)]
child = os.fork()
if child == 0:
    del iterator
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert values(given + list(iterator)) == SQUARES
"""
    )


def test_workers_are_asked_for_no_more_than_prefetch_factor_says():
    script(
        """
import multiprocessing
counter = multiprocessing.get_context("fork").Value("i", 0)

class Counts(Squares):
    def __getitem__(self, i):
        with counter.get_lock():
            counter.value += 1
        return super().__getitem__(i)

iterator = iter(make(Counts(), prefetch_factor=3))
given = [next(iterator)]
for _ in wait_until("what may be computed ahead"):
    if counter.value == 7:
        break
await_asleep(iterator._workers[0].pid)
await_asleep(iterator._workers[1].pid)
assert counter.value == 7
"""
    )


def test_many_loaders_at_once_do_not_meet():
    script(
        """
iterators = [iter(make(num_workers=n, batch_size=None)) for n in (1, 2, 3)]
given = [[int(t[0]) for t in batches] for batches in zip(*iterators)]
assert given == [[i * i] * 3 for i in range(64)]
"""
    )


def test_the_environment_has_no_descriptors_of_ours():
    """A program that a dataset starts inherits nothing that keeps us alive."""
    script(
        """
import subprocess
class Lists(Squares):
    def __getitem__(self, i):
        told = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True)
        return torch.tensor([len(told.stdout.split())])
assert {int(count) for count in make(Lists(4))} <= {3, 4}
"""
    )


def test_what_a_collate_function_keeps_of_a_batch_stays_as_it_is():
    script(
        """
from torch.utils.data import default_collate
kept = []
def collate(samples):
    batch = default_collate(samples)
    kept.append((batch.numpy(), batch, float(batch.sum())))
    assert all(float(a.sum()) == s == float(b.sum()) for a, b, s in kept)
    return batch

loader = make(Squares(40, (40_000,)), batch_size=2, num_workers=1, collate_fn=collate)
assert values(loader) == [i * i for i in range(0, 40, 2)]
"""
    )
