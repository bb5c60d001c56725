"""Little shared memory, few descriptors, kept batches, and nothing that grows."""

import pytest

from faults.scripts import can_mount, run, with_shm_of_its_own

pytestmark = pytest.mark.multiprocess

WIDE = """
class Wide(g.MapTransform):
    def map(self, x):
        return np.full(40_000, x)
"""


@pytest.mark.claim("/dev/shm is not used.")
@pytest.mark.skipif(not can_mount(), reason="unshare -m is not permitted")
@pytest.mark.parametrize("options", ["size=64m", "ro"])
def test_dev_shm_is_not_needed(options):
    run(
        WIDE
        + """
iterator = iter(loader([Wide()], records=1000, batch=8))
kept = list(iterator)
total = sum(array.nbytes for array in kept)
assert total > 256 << 20, total
for array, wanted in zip(kept, loader([], records=1000, batch=8, workers=0)):
    assert (array == wanted[:, None]).all()
assert os.listdir("/dev/shm") == []
""",
        command=with_shm_of_its_own(options),
    )


@pytest.mark.claim("What you hold is never overwritten.")
@pytest.mark.parametrize("every", [1, 7])
def test_5000_batches_are_kept_with_128_descriptors(every):
    run(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        every = int(sys.argv[1])
        class Row(g.MapTransform):
            def map(self, x):
                # Two rows make a leaf that is too large to be copied out.
                return np.full(9 << 10, x % 251, np.uint8)
        count = {1: 5000, 7: 7000}[every]
        kept = []
        iterator = iter(loader([Row()], records=2 * count, batch=2))
        for number, batch in enumerate(iterator):
            assert type(batch.base).__name__ == "SlotView"
            if number % every == 0:
                kept.append((number, batch))
        wanted = list(loader([], records=2 * count, batch=2, workers=0))
        assert len(kept) == count // every
        for number, batch in kept:
            assert (batch == (wanted[number] % 251)[:, None]).all(), number
        assert len(os.listdir("/proc/self/fd")) < 40
        """,
        every,
    )


@pytest.mark.claim("What you hold is never overwritten.")
def test_arrays_outlive_everything_and_are_the_users_to_change():
    run(
        WIDE
        + """
iterator = iter(loader([Wide()]))
kept = [next(iterator) for _ in range(4)]
view = kept[1][:, 5:9]
iterator.close()
del iterator, kept[1]
import gc
gc.collect()
assert (kept[0] == np.array([0, 2, 4, 6])[:, None]).all()
assert view.tolist() == [[x] * 4 for x in (1, 3, 5, 7)]
kept[0] += 1
view[:] = 0
assert (kept[1] == np.array([8, 10, 12, 14])[:, None]).all()
"""
    )


@pytest.mark.claim("memory_limit=")
@pytest.mark.claim("Past memory_limit, ArenaFull says how much you keep.")
@pytest.mark.parametrize("kind", ["[Wide()]", "filtered(Wide())"])
def test_memory_limit_says_what_is_needed_and_had(kind):
    run(
        WIDE
        + f"operations = {kind}"
        + """
from itertools import zip_longest
limit = 24 << 20
iterator = iter(loader(operations, records=400, memory_limit=limit))
reference = undisturbed(operations, records=400)
kept = []
def keep():
    for batch in iterator:
        kept.append(batch)
error = expect(g.errors.ArenaFull, keep, deadline_s=10)
assert isinstance(error, MemoryError)
need = kept[0].nbytes
words = str(error).replace(",", " ").split()
numbers = [int(word) for word in words if word.isdigit()]
assert need <= numbers[0] <= 2 * need, error
assert limit in numbers[:3], error
assert f"by {len(kept)} outputs that you keep" in str(error), error
assert need * (len(kept) + 1) <= 1.3 * limit and len(kept) >= 3, len(kept)
copies = digest(kept)
# With less kept it goes on where it stopped.
kept.clear()
rest = []
for batch in iterator:
    rest += digest([batch])
    del batch
assert copies + rest == reference
"""
    )


@pytest.mark.parametrize("limit_mib", [1, 2])
def test_one_output_larger_than_the_memory_limit(limit_mib):
    run(
        WIDE
        + """
limit = int(sys.argv[1]) << 20
iterator = iter(loader([Wide()], batch=8, memory_limit=limit))
error = expect(g.errors.ArenaFull, lambda: next(iterator))
assert str(limit) in str(error), error
""",
        limit_mib,
    )


GROWTH = """
import gc
def usage():
    gc.collect()
    with open("/proc/self/smaps_rollup") as file:
        private = sum(int(l.split()[1]) for l in file if l.startswith("Private_"))
    with open("/proc/self/maps") as file:
        maps = len(file.readlines())
    descriptors = len(os.listdir("/proc/self/fd"))
    return descriptors, len(os.listdir("/proc/self/task")), maps, private
def start():
    iterator = iter(loader([Add()]))
    next(iterator)
    del iterator
for _ in range(10):
    start()
before = usage()
for _ in range(int(sys.argv[1])):
    start()
after = usage()
assert after[:2] == before[:2], (before, after)
assert after[2] <= before[2] + 8, (before, after)
assert after[3] <= before[3] + 4096, (before, after)
assert len(descendants(os.getpid())) <= 1
"""


@pytest.mark.parametrize(
    "starts", [60, pytest.param(200, marks=pytest.mark.soak)], ids=str
)
def test_nothing_grows_over_many_starts(starts):
    run(GROWTH, starts, deadline_s=200)
