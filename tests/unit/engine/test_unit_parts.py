"""A slow output does not delay the finished outputs of its unit."""

import contextlib
import os
import signal

import numpy as np
import pytest

import gristmill as g
from gristmill import _core
from gristmill._engine.unit_parts import UnitParts

RECORDS = 96
WORKERS = 2


class Gate:
    """Blocks calls with one number, in any process, until `opened`."""

    def __init__(self, path, number):
        self.path = str(path)
        self.number = number

    def __call__(self, x):
        if x == self.number:
            os.close(os.open(self.path, os.O_RDONLY))  # Waits for a writer.
        return x

    @contextlib.contextmanager
    def opened(self):
        writer = os.open(self.path, os.O_WRONLY)  # Waits for a reader.
        try:
            yield
        finally:
            os.close(writer)


@pytest.fixture
def gate_at(tmp_path):
    def make(number):
        os.mkfifo(tmp_path / "gate")
        return Gate(tmp_path / "gate", number)

    return make


class Source:
    def __init__(self, gate):
        self.gate = gate

    def __len__(self):
        return RECORDS

    def __getitem__(self, key):
        return self.gate(key)


class Apply(g.MapTransform):
    def __init__(self, call):
        self.call = call

    def map(self, x):
        return self.call(x)


class Draw(g.RandomMapTransform):
    def random_map(self, x, rng):
        rng.integers(9)
        return x


def loader(source, operations=(), **options):
    return g.DataLoader(
        data_source=source,
        sampler=g.IndexSampler(RECORDS, seed=1, num_epochs=1),
        operations=list(operations),
        worker_count=WORKERS,
        **options,
    )


def chain(dataset, then=lambda ds: ds, read_options=None):
    options = g.MultiprocessingOptions(num_workers=WORKERS)
    return then(dataset.to_iter_dataset(read_options)).mp_prefetch(options)


def plus_one(x):
    return x + 1


def minus_one(x):
    return x - 1


def with_index(index, x):
    return x


FACES = {
    "loader, map": lambda gate: loader(range(RECORDS), [Apply(gate)]),
    "loader, random map": lambda gate: loader(range(RECORDS), [Draw(), Apply(gate)]),
    "loader, source": lambda gate: loader(Source(gate)),
    "loader, no threads": lambda gate: loader(
        Source(gate), read_options=g.ReadOptions(0, 0)
    ),
    "loader, substitute": lambda gate: loader(
        range(RECORDS), [Apply(gate)], on_error="substitute"
    ),
    "loader, one stream": lambda gate: loader(range(RECORDS), [Apply(gate)], streams=1),
    "loader, batches of one": lambda gate: loader(
        range(RECORDS), [Apply(gate), g.Batch(1)]
    ),
    "chain, map": lambda gate: chain(g.MapDataset.range(RECORDS).map(gate)),
    "chain, several": lambda gate: chain(
        g.MapDataset.range(RECORDS)
        .seed(1)
        .map(plus_one)
        .map(minus_one)
        .random_map(Draw())
        .map(gate)
        .map_with_index(with_index)
    ),
    "chain, shuffled": lambda gate: chain(
        g.MapDataset.range(RECORDS).map(gate).shuffle(seed=1)
    ),
    "chain, no threads": lambda gate: chain(
        g.MapDataset.range(RECORDS).map(gate), read_options=g.ReadOptions(0, 0)
    ),
    "chain, map behind": lambda gate: chain(
        g.MapDataset.range(RECORDS), lambda ds: ds.map(gate)
    ),
    "chain, source": lambda gate: chain(g.MapDataset.source(Source(gate))),
}


def plain(elements):
    return [np.asarray(element).tolist() for element in elements]


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("face", "at"),
    [("loader, map", 3), ("chain, map", 3), *((face, 45) for face in FACES)],
)
def test_elements_before_an_endless_one_are_delivered(face, at, gate_at):
    expected = list(range(RECORDS))
    if face == "chain, shuffled":
        expected = list(g.MapDataset.range(RECORDS).shuffle(seed=1))
    gate = gate_at(expected[at])
    if face == "loader, batches of one":
        expected = [[x] for x in expected]
    iterator = iter(FACES[face](gate))
    # The last of these arrive while a worker is blocked at the gate.
    assert plain(next(iterator) for _ in range(at)) == expected[:at]
    state = iterator.get_state()
    with gate.opened():
        assert plain(iterator) == expected[at:]
        iterator.set_state(state)
        assert plain(iterator) == expected[at:]


@pytest.mark.multiprocess
@pytest.mark.parametrize("face", ["loader, map", "chain, map"])
def test_worker_death_after_a_part_repeats_nothing(face, gate_at):
    gate = gate_at(37)
    iterator = iter(FACES[face](gate))
    elements = [next(iterator) for _ in range(37)]
    run = iterator._run
    # A worker that has not started has pid 0, which is our own process group.
    pids = [pid for pid, _, _ in run._running.scheduler.processes() if pid]
    # All stop first. Otherwise one could take over the unit of another, and its death
    # would be the second for that unit.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    with gate.opened():
        elements += iterator
    assert elements == list(range(RECORDS))


@pytest.mark.multiprocess
@pytest.mark.parametrize("count", [1, 3])
def test_changed_worker_count_continues_after_a_part(count, gate_at):
    gate = gate_at(37)
    iterator = iter(FACES["loader, map"](gate))
    elements = [next(iterator) for _ in range(37)]
    iterator.set_workers(count)
    with gate.opened():
        elements += iterator
    assert elements == list(range(RECORDS))


class FailsAt(Gate):
    """Raises an exception after the gate opens."""

    def __call__(self, x):
        super().__call__(x)
        if x == self.number:
            raise LookupError(f"no {x}")
        return x


@pytest.mark.multiprocess
@pytest.mark.parametrize("face", ["loader, map", "chain, map"])
def test_error_after_a_part_is_raised_in_its_place(face, tmp_path):
    os.mkfifo(tmp_path / "gate")
    gate = FailsAt(tmp_path / "gate", 37)
    iterator = iter(FACES[face](gate))
    elements = [next(iterator) for _ in range(37)]
    with gate.opened():
        with pytest.raises(LookupError, match="no 37"):
            next(iterator)
        assert elements + list(iterator) == [i for i in range(RECORDS) if i != 37]


class StopsAt(Gate):
    """Raises StopIteration after the gate opens, like the end of a source."""

    def __call__(self, x):
        super().__call__(x)
        if x >= self.number:
            raise StopIteration
        return x


@pytest.mark.multiprocess
@pytest.mark.parametrize("face", ["loader, source", "loader, no threads"])
def test_end_of_a_source_after_a_part_ends_its_stream(face, tmp_path):
    os.mkfifo(tmp_path / "gate")
    gate = StopsAt(tmp_path / "gate", 37)
    iterator = iter(FACES[face](gate))
    elements = [next(iterator) for _ in range(37)]
    with gate.opened():
        assert elements + list(iterator) == list(range(37))


class End:
    """A worker's end with settable answers."""

    def __init__(self):
        self.awaited = True
        self.takes = True
        self.unit = Unit(0, 8)
        self.offers = []

    def is_awaited(self):
        return self.awaited

    def can_resume(self):
        return True

    def offer_part(self, outputs, nbytes, position):
        self.offers.append((outputs, position))
        return True

    def resume(self):
        if self.takes is None:
            return None
        if self.takes:
            _, (first,) = self.offers[-1]
            self.unit = Unit(first, 8 - first)
        return self.unit


class Unit:
    def __init__(self, first, count):
        self.first, self.count = first, count


class Result:
    def __init__(self):
        self.outputs, self.delivered_count = [], 0


def outputs(first, last):
    return [(f"element {i}", None, (i + 1,)) for i in range(first, last)]


@pytest.fixture
def parts(monkeypatch):
    """Return parts whose watch never calls back, an end, and a result."""

    class Silent:
        def __init__(self, callback):
            pass

        def begin(self, delay_s):
            pass

        def end(self):
            pass

    monkeypatch.setattr(_core, "Watch", Silent)
    end = End()
    return UnitParts(end, lambda unit, done: (len(done), 100)), end, Result()


def test_parts_are_offered_while_they_are_awaited(parts):
    unit_parts, end, result = parts
    unit_parts.begin(end.unit, result, None)
    result.outputs += outputs(0, 2)
    end.awaited = False
    assert unit_parts._hand_over(0.01) > 0
    assert end.offers == []
    end.awaited = True
    unit_parts._hand_over(0.02)
    unit_parts._hand_over(0.03)
    result.outputs += outputs(2, 5)
    unit_parts._hand_over(0.04)
    assert end.offers == [(2, (2,)), (3, (5,))]
    result.outputs += outputs(5, 8)
    assert unit_parts.finish(Unit(0, 8)).first == 5
    assert (result.outputs, result.delivered_count) == (outputs(5, 8), 5)
    assert unit_parts._hand_over(0.05) is None


@pytest.mark.parametrize("when", ["later", "at the end"])
def test_rejected_part_stays_with_its_unit(parts, when):
    unit_parts, end, result = parts
    end.takes = False
    unit_parts.begin(end.unit, result, None)
    result.outputs += outputs(0, 2)
    unit_parts._hand_over(0.01)
    result.outputs += outputs(2, 4)
    if when == "later":
        assert unit_parts._hand_over(0.02) is None
    assert unit_parts.finish(Unit(0, 8)) is end.unit
    assert (result.outputs, result.delivered_count) == (outputs(0, 4), 0)


def test_lost_unit_leaves_nothing(parts):
    unit_parts, end, result = parts
    end.takes = None
    unit_parts.begin(end.unit, result, None)
    result.outputs += outputs(0, 2)
    unit_parts._hand_over(0.01)
    assert unit_parts._hand_over(0.02) is None
    assert unit_parts.finish(Unit(0, 8)) is None


class Running:
    """A call that computes several outputs."""

    def __init__(self):
        self.done = []

    def outputs_so_far(self):
        return self.done


@pytest.mark.parametrize("takes", [True, False])
def test_outputs_of_a_running_call_are_offered_once(parts, takes):
    unit_parts, end, result = parts
    end.takes = takes
    running = Running()
    unit_parts.begin(end.unit, result, running)
    running.done = outputs(0, 3)
    unit_parts._hand_over(0.01)
    running.done = []
    unit_parts.add_run(outputs(0, 4))
    running.done = outputs(4, 6)
    unit_parts._hand_over(0.02)
    unit_parts.add_run(outputs(4, 8))
    assert unit_parts.finish(Unit(0, 8)).first == (6 if takes else 0)
    assert result.outputs == (outputs(6, 8) if takes else outputs(0, 8))
    assert end.offers == [(3, (3,)), (3, (6,))][: 2 if takes else 1]


def test_unwritable_output_is_kept_for_the_end(parts):
    unit_parts, end, result = parts

    def write(unit, done):
        raise ValueError("no")

    unit_parts._write = write
    unit_parts.begin(end.unit, result, None)
    result.outputs += outputs(0, 2)
    assert unit_parts._hand_over(0.01) is None
    assert unit_parts.finish(end.unit) is end.unit
    assert result.outputs == outputs(0, 2)
