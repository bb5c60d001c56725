"""Workers of mp_prefetch are killed at random; the output is as if they were not."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

CHAINS = """
def resize(x, rng):
    return {"x": x, "row": np.resize(rng.integers(0, 256, 99, np.uint8), 9999)}
class Words(g.IterDataset):
    # Without indices; the state has another length after each element.
    def __init__(self, count):
        super().__init__()
        self.part = range(count)
    def set_slice(self, sl, sequential_slice=False):
        self.part = self.part[sl]
    def __iter__(self):
        return WordsIterator(self.part)
class WordsIterator(g.DatasetIterator):
    def __init__(self, part):
        super().__init__()
        self.part, self.place = part, 0
    def __next__(self):
        if self.place == len(self.part):
            raise StopIteration
        self.place += 1
        return {"x": self.part[self.place - 1], "row": np.zeros(9999, np.uint8)}
    def get_state(self):
        return {"place": self.place, "filler": "x" * (self.place * 7919 % 60_000)}
    def set_state(self, state):
        self.place = state["place"]
        assert state == self.get_state()
source = g.MapDataset.range(1600).seed(3).shuffle()
CHAINS = {
    "batches": lambda: source.random_map(resize).to_iter_dataset().batch(4),
    "absent": lambda: source.filter(lambda x: x % 3 > 0).map(lambda x: [x])
        .to_iter_dataset().batch(4),
    "counted": lambda: source.to_iter_dataset().filter(lambda x: x % 5 > 0)
        .random_map(resize).batch(4),
    "states": lambda: Words(400),
    "packing": lambda: source.map(lambda x: {"t": np.full(x % 50 + 1, x)})
        .to_iter_dataset().pipe(
            g.experimental.BestFitPackIterDataset, length_struct={"t": 64},
            num_packing_bins=5).filter(lambda row: row["t"][0] % 9 > 0).batch(2),
    "mixed": lambda: g.IterDataset.mix(
        [Words(500), source.random_map(resize).to_iter_dataset()]).batch(4),
}
def options(workers):
    return g.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)
def prefetched(workers):
    return CHAINS[sys.argv[1]]().mp_prefetch(options(workers), streams=3)
def flat(element):
    if isinstance(element, dict):
        return digest([np.asarray(leaf) for leaf in element.values()])
    return digest([np.asarray(element)])
"""

SCRIPT = (
    CHAINS
    + """
import random
from gristmill._dataset.parallel import process_prefetch
process_prefetch.MAX_RESTARTS = 100
chance = random.Random(7)
iterator = iter(prefetched(2))
alone = iter(prefetched(0))
killed = 0
for number, wanted in enumerate(alone):
    assert flat(next(iterator)) == flat(wanted), number
    assert iterator.get_state() == alone.get_state(), number
    if chance.random() < 0.1:
        victims = [pid for pid in family(2)["worker"]]
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(victims), signal.SIGKILL)
            killed += 1
    if chance.random() < 0.01:
        iterator.set_state(iterator.get_state())
assert next(iterator, None) is None
assert iterator.get_state() == alone.get_state()
assert killed > 20, killed
"""
)


@pytest.mark.parametrize(
    "chain", ["batches", "absent", "counted", "states", "mixed", "packing"]
)
def test_output_and_states_are_identical_after_many_kills(chain):
    run(SCRIPT, chain)


DIES = (
    CHAINS
    + """
marks = sys.argv[2]
def fault(x):
    # Each process that gets here leaves a mark and dies.
    if x == 17:
        with open(marks, "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGSEGV)
    return x
chain = g.MapDataset.range(40).map(fault).to_iter_dataset()
if sys.argv[1] == "C":
    chain = chain.filter(lambda x: True)
iterator = iter(chain.batch(2).mp_prefetch(options(2)))
got = []
try:
    for batch in iterator:
        got.append(batch.tolist())
except g.WorkerDied as error:
    assert "was terminated unexpectedly" in str(error), error
    assert "killed by SIGSEGV (exit code -11)" in str(error), error
else:
    raise AssertionError("nothing was raised")
assert got == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15],
               [16, 18]], got
# The first may have been looking ahead.
assert open(marks).read() in ("xx", "xxx")
state = iterator.get_state()
iterator.close()
# The same output without workers, where a debugger could follow.
os.kill = lambda *_: None
alone = iter(chain.batch(2).mp_prefetch(options(0), streams=2))
alone.set_state(state)
assert next(alone).tolist() == [17, 19]
"""
)


@pytest.mark.parametrize("kind", ["A", "C"])
def test_what_kills_its_workers_is_raised_in_its_place(kind, tmp_path):
    run(DIES, kind, tmp_path / "marks")


PARENT = """
dataset = g.MapDataset.range(10**9).to_iter_dataset().filter(lambda x: True)
iterator = iter(dataset.mp_prefetch(g.MultiprocessingOptions(num_workers=3)))
next(iterator)
found = family(3)
pidfds = [os.pidfd_open(pid) for pids in found.values() for pid in pids]
"""


def test_nothing_is_left_after_exit_without_close():
    run(PARENT + "print(len(pidfds))")


def test_nothing_is_left_after_close():
    run(PARENT + "iterator.close()\nawait_gone(pidfds[2:])")


def test_no_main_guard_is_needed():
    out = run(
        """
import gristmill as g
ds = g.MapDataset.range(6).map(lambda x: x * 10).to_iter_dataset()
print(list(ds.mp_prefetch(g.MultiprocessingOptions(num_workers=2))))
""",
        bare=True,
    )
    assert out.strip() == "[0, 10, 20, 30, 40, 50]"
