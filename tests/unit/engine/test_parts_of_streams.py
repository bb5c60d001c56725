"""Parts of a unit and its rest are what the unit is without parts."""

import numpy as np
import pytest

import gristmill as g
from gristmill import _core
from gristmill._engine.worker import Server

RECORDS = 60
UNIT = 16


class Unit:
    """Records [first, end) of stream 0, for a worker to compute."""

    kind = _core.UnitKind.RANGE
    stream = attempt = 0

    def __init__(self, first, end):
        self.first, self.count = first, end - first
        self.memory = np.zeros(1 << 16, np.uint8)
        self.address, self.capacity = self.memory.ctypes.data, self.memory.size


class End:
    """A worker's end whose parent waits always, and takes each part."""

    cursor_capacity = 64

    def __init__(self):
        self.at = np.zeros(1, np.int64)
        self.at_address = self.at.ctypes.data

    def begin(self, unit):
        self.unit = unit
        self.end = unit.first + unit.count

    def is_awaited(self):
        return True

    def can_resume(self):
        return True

    def offer_part(self, outputs, nbytes, vector):
        self.unit = Unit(vector[0], self.end)
        return True

    def resume(self):
        return self.unit

    def commit(self, status, outputs, nbytes, vector):
        pass


class Silent:
    """A watch that never calls back."""

    def begin(self, delay_s):
        pass

    def end(self):
        pass


class Worker(Server):
    """Notes what it hands over, and where it was called to do so."""

    def __init__(self, program, in_parts):
        self._IN_PARTS = in_parts
        super().__init__(program, End(), 0, 1)
        if in_parts:
            self._parts._watch = Silent()
        self.written, self.offers = [], 0

    def _write_part(self, unit, outputs):
        self.offers += 1
        self._note(outputs)
        return super()._write_part(unit, outputs)

    def _write(self, writer, result, memory=None):
        if not result.is_part:
            self._note(result.outputs)
            if result.failure is not None:
                assert b"no 20" in result.failure, result.failure
                self.written.append(("no 20", result.vector))
        return super()._write(writer, result, memory)

    def _note(self, outputs):
        self.written += [(repr(element), vector) for element, _, vector in outputs]

    def hand_over(self):
        if self._parts is not None:
            self._parts._hand_over(0.02)

    def all_units(self):
        first = 0
        while first < RECORDS:
            unit = Unit(first, min(first + UNIT, RECORDS))
            self._end.begin(unit)
            self.compute(unit)
            first = self._reached[0][0]
        return self.written


class Computed:
    """What the steps below call; `worker` is the one that computes."""

    worker = None


def slow(x):
    """Return x; meanwhile another thread would hand over what is done."""
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
    return iterated.mp_prefetch(options)._pipeline


def units(program, in_parts):
    worker = Worker(program, in_parts)
    Computed.worker = worker
    try:
        return worker.all_units(), worker.offers
    finally:
        worker.close()


def assert_parts_change_nothing(program):
    whole, none = units(program, in_parts=False)
    in_parts, offers = units(program, in_parts=True)
    assert none == 0
    assert in_parts == whole
    assert len(whole) > RECORDS // 2
    return offers


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
def test_parts_that_are_ready_are_handed_over(of):
    program = {
        "chain": in_workers(g.MapDataset.range(RECORDS).map(slow), keep, None),
        "loader": loader([Slow()], range(RECORDS), (16, 500))._program,
    }[of]
    assert assert_parts_change_nothing(program) > 5
