"""A unit has the same outputs whole, in parts and split."""

import numpy as np
import pytest

import gristmill as g
from gristmill import _core
from gristmill._dataset.nodes import to_iter
from gristmill._engine.worker import Server
from gristmill._hot.slot_reader import decode

RECORDS = 60
UNIT = 16


class Unit:
    """Records [first, end) of stream 0, for a worker to compute."""

    kind = _core.UnitKind.RANGE
    stream = attempt = 0

    def __init__(self, first, end, capacity):
        self.first, self.count = first, end - first
        self.memory = np.zeros(capacity, np.uint8)
        self.address, self.capacity = self.memory.ctypes.data, self.memory.size


class End:
    """A worker's end whose parent always waits, accepts each part and reads all."""

    position_capacity = 64
    unit_records = UNIT
    slot_bytes = 1 << 16
    max_unit_bytes = 1 << 30

    def __init__(self):
        self.at = np.zeros(1, np.int64)
        self.current_record_address = self.at.ctypes.data
        self.received, self.parts, self.wrong_parts = [], 0, 0
        self.units, self.largest_need = 0, 0

    def begin(self, first):
        self.end = min(first + self.unit_records, RECORDS)
        self.units += 1
        return self._give_slot(first)

    def _give_slot(self, first):
        self.unit = Unit(first, self.end, self.slot_bytes)
        self.address = self.unit.address
        return self.unit

    def request_larger_slot(self, nbytes):
        self.largest_need = max(self.largest_need, nbytes)
        self.larger = np.zeros(nbytes, np.uint8)
        self.address = self.larger.ctypes.data
        return self.address

    def is_awaited(self):
        return True

    def can_resume(self):
        return True

    def offer_part(self, outputs, nbytes, position):
        if position[0] > self.end:
            self.wrong_parts += 1
            return False
        self.parts += 1
        self._read(outputs, nbytes)
        self._give_slot(position[0])
        return True

    def resume(self):
        return self.unit

    def commit(self, status, outputs, nbytes, position):
        self._read(outputs, nbytes)

    def _read(self, outputs, nbytes):
        for number in range(outputs):
            element, _, position = decode(self.address, nbytes, number, None, 1 << 20)
            if type(element) is bytes:
                assert b"no 20" in element, element
                element = "no 20"
            self.received.append((element, position.tolist()))


class SmallEnd(End):
    """A worker's end whose units are shorter than its program expects.

    This happens if a worker died after it had handed over the first outputs.
    """

    unit_records = 3


class TightEnd(End):
    """A worker's end with so little memory that all units are split."""

    slot_bytes = 64
    max_unit_bytes = 512


class Silent:
    """A watch that never calls back."""

    def begin(self, delay_s):
        pass

    def end(self):
        pass


class Worker(Server):
    """Computes all units of stream 0."""

    def __init__(self, program, end, in_parts=True):
        self._IN_PARTS = in_parts
        super().__init__(program, end, 0, 1)
        if in_parts:
            self._parts._watch = Silent()

    def hand_over(self):
        if self._parts is not None:
            self._parts._hand_over(0.02)

    def compute_all(self):
        first = 0
        while first < RECORDS:
            self.compute(self._worker_end.begin(first))
            first = self._end_positions[0][0]


class Computed:
    """Holds the worker that runs the steps below, so that they can call it."""

    worker = None


def slow(x):
    """Return x after handing over finished outputs, as another thread would."""
    Computed.worker.hand_over()
    return x


def slow_batch(xs):
    Computed.worker.hand_over()
    return xs


def slow_draw(x, rng):
    Computed.worker.hand_over()
    return x, int(rng.integers(1000))


def double(x):
    return 2 * x


def fail_at_20(x):
    if x == 20:
        raise ValueError("no 20")
    return x


def none_at_sixes(x):
    return None if x % 6 == 0 else x


class Slow(g.MapTransform):
    def map(self, x):
        return slow(x)


class SlowDraw(g.RandomMapTransform):
    def random_map(self, x, rng):
        return slow_draw(x, rng)


class Double(g.MapTransform):
    def map(self, x):
        return double(x)


class FailAt20(g.MapTransform):
    def map(self, x):
        return fail_at_20(x)


class Source:
    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        return slow(index)


def keep(ds):
    return ds


SOURCES = {
    "range": lambda: g.MapDataset.range(RECORDS),
    "slow source": lambda: g.MapDataset.source(Source()),
}
INDEXED = {
    "slow": lambda ds: ds.map(slow),
    "steps around": lambda ds: ds.map(double).map(slow).map(double),
    "random": lambda ds: ds.seed(1).random_map(slow_draw),
    "shuffled": lambda ds: ds.map(slow).shuffle(seed=3),
    "batches": lambda ds: ds.batch(1).map(slow_batch),
    "error": lambda ds: ds.map(slow).map(fail_at_20),
    "none": lambda ds: ds.map(slow).map(none_at_sixes),
}
BEHIND = {
    "nothing": keep,
    "map": lambda ds: ds.map(str),
    "slow map": lambda ds: ds.map(slow),
    "error": lambda ds: ds.map(lambda x: fail_at_20(x if isinstance(x, int) else 0)),
    "options": lambda ds: g.experimental.WithOptionsIterDataset(
        ds, g.experimental.DatasetOptions(filter_raise_threshold_ratio=None)
    ),
}


def in_workers(dataset, behind, read_options):
    options = g.MultiprocessingOptions(num_workers=1)
    iterated = behind(dataset.to_iter_dataset(read_options))
    return iterated.mp_prefetch(options)._program


def computed(program, end, in_parts=True):
    Computed.worker = Worker(program, end, in_parts)
    try:
        Computed.worker.compute_all()
    finally:
        Computed.worker.close()
    return end


def assert_parts_change_nothing(program):
    whole = computed(program, End(), in_parts=False)
    parts = computed(program, End())
    assert parts.received == whole.received
    short = computed(program, SmallEnd())
    assert short.received == whole.received
    tight = computed(program, TightEnd())
    assert tight.received == whole.received
    assert parts.wrong_parts == short.wrong_parts == tight.wrong_parts == 0
    assert len(whole.received) > RECORDS // 2
    return parts.parts


@pytest.fixture(autouse=True)
def growing_blocks(monkeypatch):
    """Double the block size even for slow elements."""
    monkeypatch.setattr(to_iter, "BLOCK_NS", 1 << 60)


@pytest.mark.parametrize("threads", [(0, 0), (2, 8)], ids=["alone", "threads"])
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("indexed", INDEXED)
@pytest.mark.parametrize("source", SOURCES)
def test_parts_of_a_chain_change_nothing(source, indexed, behind, threads):
    dataset = INDEXED[indexed](SOURCES[source]())
    program = in_workers(dataset, BEHIND[behind], g.ReadOptions(*threads))
    assert_parts_change_nothing(program)


@pytest.mark.parametrize("threads", [(0, 0), (2, 8)], ids=["alone", "threads"])
@pytest.mark.parametrize("source", [range(RECORDS), Source()], ids=["range", "slow"])
@pytest.mark.parametrize(
    "operations",
    [
        [Slow()],
        [Double(), Slow(), Double()],
        [Slow(), SlowDraw()],
        [Slow(), FailAt20()],
        [Slow(), g.Batch(1)],
    ],
    ids=["slow", "around", "random", "error", "batches"],
)
def test_parts_of_a_loader_change_nothing(operations, source, threads):
    assert_parts_change_nothing(loader(operations, source, threads)._program)


def loader(operations, source, threads):
    return g.DataLoader(
        data_source=source,
        sampler=g.IndexSampler(RECORDS, shuffle=True, seed=1, num_epochs=1),
        operations=operations,
        worker_count=1,
        read_options=g.ReadOptions(*threads),
    )


@pytest.mark.parametrize("of", ["chain", "loader"])
def test_finished_parts_are_handed_over(of):
    program = {
        "chain": in_workers(g.MapDataset.range(RECORDS).map(slow), keep, None),
        "loader": loader([Slow()], range(RECORDS), (16, 500))._program,
    }[of]
    assert assert_parts_change_nothing(program) > 5


def test_large_outputs_are_split_to_fit():
    def blank(size):
        Computed.worker.hand_over()
        return np.zeros(size, np.uint8)

    dataset = g.MapDataset.range(RECORDS).map(blank)
    for awaited in (False, True):
        end = TightEnd()
        end.is_awaited = lambda awaited=awaited: awaited
        computed(in_workers(dataset, keep, None), end)
        assert [element.size for element, _ in end.received] == list(range(RECORDS))
        assert end.largest_need <= TightEnd.max_unit_bytes
        assert (end.parts > 0) == awaited


@pytest.mark.parametrize("of", ["chain", "loader"])
def test_worker_computes_only_the_records_of_its_unit(of):
    calls = []

    class Count(g.MapTransform):
        def map(self, x):
            calls.append(x)
            return x

    program = {
        "chain": in_workers(g.MapDataset.range(RECORDS).map(Count()), keep, None),
        "loader": loader([Count()], range(RECORDS), (0, 0))._program,
    }[of]
    computed(program, SmallEnd())
    assert sorted(calls) == list(range(RECORDS))
