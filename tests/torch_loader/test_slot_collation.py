"""Tests that default_collate in a worker makes torch's results in the slot."""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch.utils.data import default_collate
from torch.utils.data._utils import collate, worker

from gristmill._torch.batches import slot_collation
from torch_loader.batches import (
    OwnDict,
    OwnTensor,
    Pair,
    Slot,
    assert_same,
    through_torch,
)

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{begin}")
    for begin in ("Sparse", "ComplexHalf", "The PyTorch API", "TypedStorage")
]


@pytest.fixture(autouse=True)
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make torch believe that this is a worker, and undo what `install` does."""
    rules = slot_collation.rules()
    kept = torch.UntypedStorage._new_shared
    monkeypatch.setattr(worker, "_worker_info", object())
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", kept)
    yield
    collate.default_collate_fn_map.clear()
    collate.default_collate_fn_map.update(rules)


@pytest.fixture(autouse=True)
def each_warning() -> Iterator[None]:
    """Let torch repeat its warnings, which are errors here, in the second collation."""
    kept = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(kept)


@pytest.fixture
def slot() -> Slot:
    return Slot(4 << 20)


class Outcome:
    """The result or the error of a call."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        try:
            self.result = call()
        except Exception as error:
            self.error = error

    def assert_same(self, want: Outcome) -> None:
        """Check results, or types and texts of errors."""
        assert (type(self.error), str(self.error)) == (
            type(want.error),
            str(want.error),
        )
        assert_same(self.result, want.result)


def check(samples: list[Any]) -> Any:
    """Collate samples like a worker of ours and like torch's, and compare."""
    rules = slot_collation.rules()
    want = Outcome(lambda: default_collate(samples))
    kept = torch.UntypedStorage._new_shared
    slot_collation.install(rules)
    slot = Slot(4 << 20)
    try:
        with slot_collation.allocate_with(slot.empty):
            got = Outcome(lambda: default_collate(samples))
        got.assert_same(want)
        assert_same(slot.send(got.result), through_torch(want.result))
    finally:
        slot_collation.move_live_batches()
        torch.UntypedStorage._new_shared = kept
        collate.default_collate_fn_map.clear()
        collate.default_collate_fn_map.update(rules)
    return got.result


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(int(np.prod(shape))).reshape(shape).to(dtype)


SAMPLES = {
    "tensors": [rows(2, 3), rows(2, 3) + 1],
    "one tensor": [rows(2, 3)],
    "0-dim": [torch.tensor(1), torch.tensor(2)],
    "empty tensors": [torch.empty(0, 3), torch.empty(0, 3)],
    "bfloat16": [rows(3, dtype=torch.bfloat16)] * 3,
    "float8": [rows(3, dtype=torch.float8_e4m3fn)] * 3,
    "transposed": [rows(2, 3).t(), rows(2, 3).t()],
    "channels last": [rows(1, 2, 3, 4).to(memory_format=torch.channels_last)] * 2,
    "expanded": [torch.ones(1).expand(4)] * 2,
    "two dtypes": [rows(3), rows(3, dtype=torch.int64)],
    "two dtypes, wider last": [rows(3, dtype=torch.int64), rows(3)],
    "two sizes": [rows(3), rows(4)],
    "two sizes, smaller last": [rows(4), rows(3)],
    "two numbers of dimensions": [rows(3), rows(3, 1)],
    "a tensor and a number": [rows(3), 4],
    "requiring grad": [rows(3).requires_grad_()] * 2,
    "parameters": [torch.nn.Parameter(rows(3))] * 2,
    "own tensors": [rows(3).as_subclass(OwnTensor)] * 2,
    "own tensor last": [rows(3), rows(3).as_subclass(OwnTensor)],
    "arrays": [np.arange(6.0).reshape(2, 3), np.ones((2, 3))],
    "read-only array": [np.arange(3)[::-1].copy()] * 2,
    "texts in arrays": [np.array(["a"])] * 2,
    "objects in arrays": [np.array([None])] * 2,
    "numpy scalars": [np.float32(1), np.float32(2)],
    "numpy bools": [np.bool_(True), np.bool_(False)],
    "ints": list(range(-100, 100)),
    "few ints": [1, 2, 3],
    "ints beyond 64 bits": [1 << 63] * 20,
    "ints and bools": [1, True] * 20,
    "ints and floats": [1, 2.5] * 20,
    "ints and texts": [1, "a"] * 20,
    "bools": [True, False] * 20,
    "floats": [i / 7 for i in range(100)] + [float("inf"), float("nan")],
    "floats and ints": [0.5, 1] * 20,
    "floats and tensors": [0.5, torch.tensor(1.5)] * 20,
    "texts": ["a", "b"],
    "bytes": [b"a", b"b"],
    "dicts": [{"x": rows(3), "n": i, "t": "a"} for i in range(20)],
    "missing keys": [{"x": 1, "y": 2}, {"x": 3}],
    "ordered": [collections.OrderedDict(x=rows(3), n=i) for i in range(20)],
    "default": [collections.defaultdict(list, {"x": rows(3)}) for _ in range(2)],
    "own dicts": [OwnDict(x=rows(3)) for _ in range(2)],
    "pairs": [Pair(rows(3), i) for i in range(20)],
    "tuples": [(rows(3), i) for i in range(20)],
    "lists of unequal lengths": [[1, 2], [3]],
    "nested": [{"a": [(rows(2), {"b": 1.5})], "c": Pair([1], "x")} for _ in range(20)],
    "none": [None, None],
    "nothing": [],
    "sets": [{1}, {2}],
    "ranges": [range(3), range(3)],
}


@pytest.mark.parametrize("samples", SAMPLES.values(), ids=SAMPLES.keys())
def test_collated_samples_match_torch(samples):
    check(samples)


def test_nested_and_sparse_tensors_match_torch():
    for layout in (torch.strided, torch.jagged):
        check([torch.nested.nested_tensor([rows(2), rows(3)], layout=layout)] * 2)
    check([torch.eye(2).to_sparse()] * 2)
    check([torch.eye(2).to_sparse_csr()] * 2)


DTYPES = [torch.uint8, torch.int64, torch.float32, torch.bfloat16, torch.complex64]
TENSORS = st.builds(
    lambda dtype, shape, turn: (
        rows(*shape, dtype=dtype).transpose(0, -1)
        if turn
        else rows(*shape, dtype=dtype)
    ),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.booleans(),
)
LEAVES = st.one_of(
    TENSORS,
    st.lists(st.integers(0, 3), max_size=3).map(lambda shape: rows(*shape).numpy()),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=2),
)
ITEMS = st.recursive(
    st.just(LEAVES),
    lambda part: st.one_of(
        st.lists(part, min_size=1, max_size=3).map(lambda parts: st.tuples(*parts)),
        st.lists(part, min_size=1, max_size=3).map(
            lambda parts: st.fixed_dictionaries(dict(zip("abc", parts, strict=False)))
        ),
    ),
    max_leaves=4,
)


@hypothesis.given(
    ITEMS.flatmap(lambda item: st.lists(item, min_size=1, max_size=3)),
    st.sampled_from([1, 10]),
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_random_samples_match_torch(samples, times):
    check(samples * times)


def test_conjugates_are_collated(slot):
    samples = [torch.tensor([1 + 2j, 3j]).conj()] * 2
    with pytest.raises(RuntimeError):
        default_collate(samples)
    slot_collation.install(slot_collation.rules())
    with slot_collation.allocate_with(slot.empty):
        assert default_collate(samples).tolist() == [[1 - 2j, -3j]] * 2


def test_batches_are_made_in_slot(slot):
    slot_collation.install(slot_collation.rules())
    samples = [{"x": rows(3), "b": rows(2, dtype=torch.bfloat16), "n": 1, "f": 0.5}]
    with slot_collation.allocate_with(slot.empty):
        batch = default_collate(samples * 30)
    assert all(slot.holds(tensor) for tensor in batch.values())
    assert not any(tensor.is_shared() for tensor in batch.values())


def files_of_torch():
    """Return the files of this process in /dev/shm."""
    return {n for n in os.listdir("/dev/shm") if n.startswith(f"torch_{os.getpid()}_")}


def test_no_file_is_made_in_dev_shm(slot, monkeypatch):
    made = []
    monkeypatch.setattr(
        torch.UntypedStorage, "_new_using_fd_cpu", lambda *_: made.append("file")
    )
    slot_collation.install(slot_collation.rules())
    before = files_of_torch()
    with slot_collation.allocate_with(slot.empty):
        batch = default_collate([(rows(3), rows(3, dtype=torch.bfloat16), 1)] * 30)
    default_collate([rows(3)] * 2)
    assert len(batch) == 3
    assert not made
    assert files_of_torch() == before


def test_new_shared_storage_uses_slot(slot):
    """Test code that many libraries copied from torch."""

    def stacked(samples: list[torch.Tensor]) -> torch.Tensor:
        size = len(samples) * samples[0].untyped_storage().nbytes()
        storage = samples[0].untyped_storage()._new_shared(size)
        out = samples[0].new(storage).resize_(len(samples), *samples[0].size())
        return torch.stack(samples, 0, out=out)

    slot_collation.install(slot_collation.rules())
    with slot_collation.allocate_with(slot.empty):
        batch = stacked([rows(3), rows(3)])
    assert slot.holds(batch)
    assert batch.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_kept_tensors_are_moved_out_of_slot(slot):
    slot_collation.install(slot_collation.rules())
    samples = [(rows(3), rows(3, dtype=torch.bfloat16), 7)] * 30
    with slot_collation.allocate_with(slot.empty):
        kept, sent = default_collate(samples), default_collate(samples)
    view = kept[0][2:]
    assert slot.holds(kept[0])
    sent.clear()
    slot_collation.move_live_batches()
    for tensor in (*kept, view):
        assert not slot.holds(tensor)
    torch.from_numpy(slot.empty((100,), np.uint8))
    assert view.tolist() == [[0, 1, 2]] * 28
    view.fill_(9)
    assert kept[0][2].tolist() == [9, 9, 9]


def test_batch_larger_than_slot_is_made_elsewhere():
    slot = Slot(4096)
    slot_collation.install(slot_collation.rules())
    with slot_collation.allocate_with(slot.empty):
        batch = default_collate([rows(3000)] * 2)
    assert not slot.holds(batch)
    assert batch[1].tolist() == list(range(3000))


def test_batches_of_other_threads_are_made_elsewhere(slot):
    slot_collation.install(slot_collation.rules())
    batches = []
    with slot_collation.allocate_with(slot.empty):
        thread = threading.Thread(
            target=lambda: batches.append(default_collate([rows(3)]))
        )
        thread.start()
        thread.join()
    assert not slot.holds(batches[0])
    assert batches[0].tolist() == [[0, 1, 2]]


def test_batches_after_fetch_are_made_elsewhere(slot):
    slot_collation.install(slot_collation.rules())
    with pytest.raises(ZeroDivisionError), slot_collation.allocate_with(slot.empty):
        raise ZeroDivisionError
    assert not slot.holds(default_collate([rows(3)]))


def test_user_collation_rules_are_used(slot):
    def joined(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return torch.cat(list(batch))

    def total(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return sum(batch)

    changed = dict(slot_collation.rules())
    changed[torch.Tensor] = joined
    changed[set] = lambda batch, *, collate_fn_map=None: batch
    del changed[str]
    slot_collation.install(list(changed.items()))
    collate.default_collate_fn_map[int] = total
    with slot_collation.allocate_with(slot.empty):
        assert default_collate([rows(2), rows(3)]).tolist() == [0, 1, 0, 1, 2]
        assert default_collate([{1}, {2}]) == [{1}, {2}]
        assert default_collate([1, 2]) == 3
        assert slot.holds(default_collate([0.5] * 20))
    assert str not in collate.default_collate_fn_map
