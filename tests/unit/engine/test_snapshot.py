"""Workers receive one snapshot of the pipeline, taken when they start."""

import collections
import dataclasses
import itertools
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import gristmill as g
from faults.scripts import PROGRAMS, environment, run
from gristmill._engine import packing

pytestmark = pytest.mark.multiprocess

LONG = packing.LONG_LIST + 7


class Map(g.MapTransform):
    """Calls a function on each element."""

    def __init__(self, function):
        self.function = function

    def map(self, element):
        return self.function(element)


def identity(element):
    return element


def loader(source, operations=(), *, workers=2, **options):
    return g.DataLoader(
        data_source=source,
        sampler=g.IndexSampler(len(source), num_epochs=1, seed=0),
        operations=operations,
        worker_count=workers,
        streams=1,
        **options,
    )


def mixed(number):
    return {
        "path": f"images/{number:05d}.png",
        "label": number,
        "weight": number / 8,
        "box": (number, [1, None]),
        "pixels": np.full(3, number % 256, np.uint8),
    }


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("count", [5, LONG])
def test_lists_of_dicts_arrive_equal(kind, count):
    source = kind(mixed(i) for i in range(count))
    for number, found in enumerate(loader(source)):
        expected = source[number]
        np.testing.assert_array_equal(found.pop("pixels"), expected["pixels"])
        assert found == {k: v for k, v in expected.items() if k != "pixels"}
    assert number == count - 1


def test_list_is_a_snapshot_from_worker_start():
    source = [{"label": i} for i in range(LONG)]
    iterator = iter(loader(source))
    assert next(iterator) == {"label": 0}
    source[LONG - 1]["label"] = "changed"
    source[LONG - 2] = None
    *_, before, last = iterator
    assert (before, last) == ({"label": LONG - 2}, {"label": LONG - 1})


@dataclasses.dataclass
class Program:
    """The object that pack() receives."""

    source: Any


def packed(source):
    fd = packing.pack(Program(source))
    try:
        return os.fstat(fd).st_size, packing.unpack(fd).source
    finally:
        os.close(fd)


SHARED = {
    "by all": lambda make: itertools.repeat(make()),
    "by neighbours": lambda make: (
        one for _ in itertools.count() for one in [make()] * 5
    ),
    "at random": lambda make: map([make() for _ in range(20)].__getitem__, DRAWS),
}
DRAWS = np.random.default_rng(0).integers(20, size=LONG).tolist()
LARGE = {
    "dict": lambda: {f"key {i}": i for i in range(300)},
    "list": lambda: [*range(1500)],
    "bytes": lambda: b"x" * 5_000,
    "array": lambda: np.zeros(600),
}


@pytest.mark.parametrize("by", SHARED)
@pytest.mark.parametrize("kind", LARGE)
def test_object_shared_by_elements_is_packed_once(by, kind):
    metas = [*itertools.islice(SHARED[by](LARGE[kind]), LONG)]
    once = len(pickle.dumps(metas, 5))
    size, source = packed([{"label": i, "meta": each} for i, each in enumerate(metas)])
    assert size < once + 100 * LONG
    assert [element["label"] for element in source] == [*range(LONG)]
    for i in (0, 1, 7, LONG - 1):
        np.testing.assert_equal(source[i]["meta"], metas[i])


@pytest.mark.parametrize("element", [mixed, str, lambda i: mixed(0) | {"n": i}])
def test_long_list_without_large_shared_objects_is_a_snapshot(element):
    source = [element(i) for i in range(LONG)]
    assert isinstance(packed(source)[1], packing.Snapshot)


def test_lambda_elements_arrive_by_cloudpickle():
    source = [lambda x, i=i: x + i for i in range(LONG)]
    made = loader(source, [Map(lambda function: function(10))])
    assert list(made)[-2:] == [LONG + 8, LONG + 9]


def test_changes_by_a_worker_stay_in_it():
    table = np.zeros((64, 1024))

    def spoil(element):
        table[:] = 1
        return element

    made = loader([1] * 8, [Map(spoil)])
    assert list(made) == [1] * 8
    assert not table.any()


def test_large_arrays_are_shared_once():
    out = run("snapshot/memory_of_large_arrays", deadline_s=120)
    one, three = map(int, out.split())
    # 200 MiB in the caller and 200 MiB for all workers together.
    assert three - one < 100 << 20, (one >> 20, three >> 20)
    assert one < 700 << 20, one >> 20


@pytest.mark.parametrize("how", ["file", "-c"])
def test_classes_and_globals_of_main_arrive(how):
    program = PROGRAMS / "snapshot" / "classes_of_main.py"
    what = [str(program)] if how == "file" else ["-c", program.read_text()]
    done = subprocess.run(
        [sys.executable, *what],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_lambdas_and_closures_arrive():
    counter = collections.Counter(a=5)

    def add(element):
        return element + counter["a"]

    made = loader([1, 2, 3], [Map(add), Map(lambda x: x * 2)])
    assert list(made) == [12, 14, 16]


class Locked:
    """A source that cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


def parts():
    lock = threading.Lock()
    unpicklable = Map(identity)
    unpicklable.lock = lock
    sampler = g.SequentialSampler(3)
    sampler.lock = lock
    batch = g.Batch(2, batch_fn=lambda elements: (lock, elements)[1])
    return {
        "data_source": {"data_source": Locked()},
        "operation Map": {"operations": [Map(identity), unpicklable]},
        "batch_fn": {"operations": [batch]},
        "sampler": {"sampler": sampler},
    }


@pytest.mark.parametrize("name", parts())
def test_unpicklable_part_is_named(name):
    arguments = {"data_source": [1, 2, 3], "sampler": g.SequentialSampler(3)}
    made = g.DataLoader(**(arguments | parts()[name]), worker_count=1)
    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock'") as caught:
        next(iter(made))
    *_, note = caught.value.__notes__
    assert note.startswith(f"The {name} cannot be pickled, so it cannot be sent")
    assert "worker_count=0" in note


def test_large_buffers_are_mapped_not_copied():
    table = np.arange(1 << 16)

    def owns(element):
        base = table
        while isinstance(base, np.ndarray):
            base = base.base
        return (base is None, int(table[element]))

    assert list(loader([3, 5], [Map(owns)])) == [(False, 3), (False, 5)]
