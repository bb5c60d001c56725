"""Calls of the compiled modules leak no references, even if they fail."""

from __future__ import annotations

import collections
import contextlib
import gc
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gristmill
from gristmill import _core
from gristmill._hot import (
    concat_split,
    draw,
    packing,
    run,
    slot_reader,
    slot_writer,
    steps,
    tree,
    views,
)
from support.core_slot import CoreSlot
from support.example_samples import bytes_list, example, float_list

pytestmark = pytest.mark.slow
ROUNDS = 100
DTYPE = np.dtype([("a", "f4"), ("b", "i8")])  # Not used elsewhere.
TABLE = np.zeros((20, 3), DTYPE)
KEYS = np.arange(5)
OUT = np.zeros((5, 3), DTYPE)
MEMORY = np.zeros(1 << 16, np.uint8)
SLOT = CoreSlot(1 << 30)
Pair = collections.namedtuple("Pair", "x y")
ELEMENTS = [
    {"b": [1, TABLE[0]], "a": Pair(2, None), "c": collections.OrderedDict(x=i)}
    for i in range(4)
]


def gather() -> None:
    _core.gather(TABLE, KEYS, OUT)
    _core.PendingGather(POOL, TABLE, KEYS, OUT).wait()
    _core.gather(TABLE, KEYS + 17, OUT)


def collate() -> None:
    arrays = [row.copy() for row in TABLE[:5]]
    assert _core.stack(arrays, OUT) == -1
    assert _core.stack_scalars([1.0, 2.0], np.empty(2)) == -1
    assert _core.stack([1, *arrays[1:]], OUT) == 0
    _core.stack(arrays, OUT[1:])


def plan() -> None:
    made = _core.KeyPlan.range(40_000).shuffle(1).repeat(3).take(1, 2, 4)
    assert pickle.loads(pickle.dumps(made)) == made
    assert repr(made) and hash(made) and made.ops
    made.fill(0, 1, np.empty(99, np.int64))
    made.take(0, 1, -1)


def positions() -> None:
    asked = np.arange(99)
    made = _core.KeyPlan.positions(50).take(1, 1, 49)
    assert len(made.keys(asked[::3])) == 33
    mixture = _core.Mixture([3, 1])
    pickle.loads(pickle.dumps(mixture)).take(asked)
    _core.permutation(9, 1)
    _core.window_shuffle(asked, 30_000, 1, 40_000)
    with contextlib.suppress(TypeError):
        _core.window_shuffle(asked, 5, -1, 40)
    with contextlib.suppress(TypeError):
        made.keys(KEYS.astype(np.int32))
    made.keys(np.zeros((2, 2), np.int64))


def elements() -> None:
    for rules in ("jax", "plain"):
        columns, treedef = tree.batch_leaves(ELEMENTS, rules)
        tree.unflatten(treedef, columns)
        _, treedef = tree.flatten(ELEMENTS, rules)
        assert pickle.loads(pickle.dumps(treedef)) == treedef
        with contextlib.suppress(ValueError):
            tree.batch_leaves([*ELEMENTS, {"b": 1}], rules)
    tree.unflatten(treedef, [])


def blocks() -> None:
    draws = draw.Draws(3)
    operations = (
        (steps.MAP, lambda x: x + 1, "map"),
        (steps.RANDOM_MAP, lambda x, rng: rng and x, "random"),
        (steps.MAP_WITH_INDEX, lambda i, x: x + i, "index"),
        (steps.FILTER, lambda x: x % 2, "filter"),
    )
    for source in (range(9), list(range(9)), Source()):
        run.run_block(source, KEYS, KEYS, operations, draws, 0)
        _, _, _, error = run.run_block(source, KEYS + 7, KEYS, operations, draws, 0)
        assert isinstance(error, IndexError)
    keep = draws.at(1)
    assert draws.at(2) is not keep
    run.run_block(range(9), KEYS, KEYS[1:], operations, draws, 0)


def examples() -> None:
    record = example(("x", float_list(1, 2, 3)), ("s", bytes_list(b"a" * 99, b"b")))
    text, default = np.dtype(object), KEYS.astype(np.float32)
    outputs = [
        ("x", "x", default.dtype, (3,), True, None),
        ("d", "d", default.dtype, (5,), True, default),
    ]
    fixed = _core.ExampleParser(outputs, False)
    parser = _core.ExampleParser([*outputs, ("s", "s", text, (), False, None)], True)
    assert list(parser.parse(record)) == ["x", "d", "s"]
    assert list(_core.parse_all_features(record)) == ["s", "x"]
    data, offsets = np.frombuffer(record, np.uint8), np.array([0, len(record)])
    assert fixed.parse_block(data, offsets, np.empty)["d"].shape == (1, 5)
    with contextlib.suppress(ValueError):
        fixed.parse_block(data, offsets // 2)
    with contextlib.suppress(TypeError):
        parser.parse("x")
    parser.parse(record[:-1])


class Source:
    """Reads several keys in one call."""

    def __getitems__(self, keys: Any) -> list[int]:
        return [range(9)[key] for key in keys]

    def __getitem__(self, key: int) -> int:
        return range(9)[key]


def slots() -> None:
    writer = slot_writer.SlotWriter(MEMORY.ctypes.data, MEMORY.nbytes)
    made = writer.empty((4, 3), DTYPE)
    element = {"x": made, "y": (TABLE, "text"), "z": [bytearray(9000), None]}
    used = slot_writer.encode(writer, [(element, KEYS, (1, 2))], (b"why", (3, 4)))
    for limit in (0, 1 << 20):
        slot_reader.decode(
            writer.address, used, 0, lambda: views.SlotView(slot_with_a_view()), limit
        )
    slot_reader.decode(writer.address, used, 1, None, 0)
    with contextlib.suppress(slot_writer.SlotTooSmallError):
        slot_writer.encode(writer, [(np.zeros(1 << 17), KEYS, ())], None)
    slot_reader.decode(writer.address, 100, 0, None, 0)


def slot_with_a_view() -> int:
    SLOT.views += 1
    return SLOT.address


class Positions:
    """An iterator with a state."""

    def __init__(self, elements: list[Any]) -> None:
        self.elements = iter(elements)

    def __next__(self) -> Any:
        return next(self.elements)

    def get_state(self) -> dict[str, Any]:
        return {"elements": ELEMENTS}


NOTHING = gristmill.MapDataset.source([]).to_iter_dataset()
FEATURES = {"length_struct": {"a": 9, "b": 9}}
PACKED = gristmill.experimental.BestFitPackIterDataset(
    NOTHING, num_packing_bins=3, meta_features=("x",), **FEATURES
)
SPLIT = gristmill.experimental.ConcatThenSplitIterDataset(
    NOTHING, split_full_length_features=False, **FEATURES
)


def rows() -> None:
    features = [{"a": TABLE[:n], "b": KEYS[: n // 2]} for n in (3, 5, 9, 1, 8)]
    scalars = {"a": TABLE[:2].tolist(), "b": 5.0}
    packer = packing.Packer(PACKED._layout)
    parent = Positions([{**x, "x": ELEMENTS} for x in features])
    while (rest := packer.fill(parent))[1] is not None:
        batch = packer.finish()
        made = [batch.row(row) for row in range(len(batch))]
        assert made[0]["x"] == [ELEMENTS] * 2
        assert packer.add(*rest[1])
    splitter = concat_split.Splitter(SPLIT._layout)
    parent = Positions([*features, {"a": TABLE, "b": np.float64(5)}])
    while not splitter.fill(parent)[1]:
        if splitter.remainder() is not None:
            splitter.restore(features[1], ELEMENTS, [(1, 3), None])
    with contextlib.suppress(ValueError):
        splitter.fill(Positions([features[0], scalars, {"a": 1}]))
    with contextlib.suppress(ValueError):
        splitter.fill(Positions([{"a": TABLE, "b": np.array(["x"])}, {"a": 1}]))
    with contextlib.suppress(KeyError):
        packer.add(features[0])
    packer.add({"a": TABLE, "b": KEYS, "x": None})


POOL = _core.Pool(1)


@pytest.mark.parametrize(
    "call",
    [gather, collate, plan, positions, elements, blocks, slots, examples, rows],
    ids=lambda f: f.__name__,
)
def test_failing_calls_leak_no_references(call: Callable[[], None]) -> None:
    watched = [None, True, DTYPE, KEYS, TABLE, OUT, ELEMENTS, Pair, 1, "x", MEMORY]

    def counts() -> Any:
        for _ in range(ROUNDS):
            with pytest.raises((ValueError, IndexError)):
                call()  # Each call ends with an error.
        gc.collect()
        return np.array([sys.getallocatedblocks(), *map(sys.getrefcount, watched)])

    # Free lists grow in the first rounds.  Leaks grow in every round.
    growth = np.diff([counts() for _ in range(9)], axis=0).min(axis=0)
    assert growth.max() < ROUNDS // 2, growth
