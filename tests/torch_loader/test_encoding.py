"""Tests that batches sent through a slot match those of torch's queue."""

from __future__ import annotations

import collections
import gc
import itertools
import threading
import warnings
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from support import read_only
from torch_loader.batches import (
    OwnDict,
    OwnTensor,
    Pair,
    Record,
    Slot,
    assert_same,
    tensors_of,
    through_torch,
)

# Warnings of torch at the first use of a feature in a process.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{begin}")
    for begin in (
        "Sparse",
        ".* support is experimental",
        "The PyTorch API",
        "TypedStorage",
    )
]

DTYPES = sorted(
    (
        dtype
        for dtype in vars(torch).values()
        if isinstance(dtype, torch.dtype)
        and "quint" not in str(dtype)
        # torch makes no tensors of these dtypes without a quantizer.
        and "qint" not in str(dtype)
    ),
    key=str,
)
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def own_dict(**items: Any) -> OwnDict:
    made = OwnDict(items)
    made.note = "kept"
    return made


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor with different bytes in every element."""
    count = int(np.prod(shape)) * dtype.itemsize
    raw = torch.arange(count, dtype=torch.int64).remainder(251).to(torch.uint8)
    made = torch.empty(0, dtype=dtype)
    size = torch.Size(shape)
    return made.set_(raw.untyped_storage(), 0, size, torch.empty(size).stride())


BATCHES = {
    "tensor": lambda: numbers(3, 4),
    "0-dim": lambda: torch.tensor(7),
    "empty": lambda: torch.empty(0, 3),
    "empty inside": lambda: torch.empty(2, 0, 3, dtype=torch.int8),
    "large": lambda: numbers(100, 1000),
    "transposed": lambda: numbers(3, 4).t(),
    "channels last": lambda: numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "strided": lambda: numbers(40, 10)[3:30:3, ::2],
    "expanded": lambda: numbers(3, 1).expand(3, 5),
    "odd strides of one row": lambda: torch.empty_strided((1, 3), (77, 1)).fill_(2),
    "part of a large one": lambda: numbers(100_000)[500:510],
    "leaf": lambda: numbers(3).requires_grad_(),
    "leaf, transposed": lambda: numbers(3, 2).t().requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(numbers(3)),
    "int parameter": lambda: torch.nn.Parameter(torch.arange(3), requires_grad=False),
    "own tensor": lambda: numbers(3).as_subclass(OwnTensor),
    "dict": lambda: {"x": numbers(3), "y": torch.tensor(1), "name": "a", "n": 5},
    "odd keys": lambda: {1: numbers(3), (2, "a"): numbers(2), None: 4, 1.5: "x"},
    "own dict": lambda: own_dict(x=numbers(3), y=[numbers(2)]),
    "ordered": lambda: collections.OrderedDict(b=numbers(3), a=numbers(2)),
    "default": lambda: collections.defaultdict(list, {"x": [numbers(2)]}),
    "namedtuple": lambda: Pair(numbers(2), [numbers(3)]),
    "dataclass": lambda: Record(numbers(20_000), "cat"),
    "packed": lambda: pack_sequence([numbers(3), numbers(2)]),
    "nested containers": lambda: [(numbers(2), {"a": [Pair(numbers(1), "b")]}), ["c"]],
    "arrays": lambda: {"a": np.arange(5), "t": numbers(2), "s": np.array(["x", "yz"])},
    "read-only array": lambda: [np.broadcast_to(np.int8(3), (2, 2)), numbers(1)],
    "read-only bytes": lambda: [np.frombuffer(b"abc", np.uint8), numbers(1)],
    "read-only, large": lambda: [np.frombuffer(bytes(40_000), "f8").reshape(50, 100)],
    "read-only, turned": lambda: [np.frombuffer(bytes(24), "i4").reshape(2, 3).T],
    "read-only dates": lambda: [np.frombuffer(bytes(24), "M8[s]")],
    "foreign byte order": lambda: [np.arange(3000, dtype=">i4"), np.ones(2, ">f4,<i2")],
    "read-only, empty": lambda: [np.frombuffer(b"", np.float32), numbers(1)],
    "large array": lambda: [np.arange(100_000.0), np.float32(3)],
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: [torch.eye(200).to_sparse_csr()],
    "meta": lambda: {"m": torch.empty(3, 2, device="meta"), "x": numbers(2)}["x"],
    "no tensor": lambda: {"a": [1, 2.5, True, None, b"x", 1 + 2j], "b": ("c",)},
    "storage": lambda: Record(numbers(3).untyped_storage(), "raw"),
    "size and dtype": lambda: [torch.Size([1, 2]), torch.bfloat16, numbers(2)],
    "int": lambda: 5,
    "none": lambda: None,
    "many ints": lambda: list(range(1000)),
}


@pytest.fixture
def slot() -> Slot:
    return Slot()


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_batch_matches_torch_queue(slot, make):
    batch = make()
    assert_same(slot.send(batch), through_torch(batch))


@pytest.mark.parametrize("container", read_only.CONTAINERS)
@pytest.mark.parametrize("name", read_only.ARRAYS)
def test_read_only_arrays_match_torch_queue(slot, name, container):
    batch = read_only.CONTAINERS[container](read_only.ARRAYS[name]())
    got, expected = slot.send(batch), through_torch(batch)
    assert repr(got) == repr(expected)
    assert read_only.writability(got) == read_only.writability(expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_arrives(slot, dtype):
    for batch in (numbers(3, 4, dtype=dtype), {"x": numbers(3, 4, dtype=dtype).t()}):
        assert_same(slot.send(batch), through_torch(batch))


@pytest.mark.parametrize("own", [False, True], ids=["plain", "own type"])
def test_nested_tensors_arrive(slot, own):
    rows = [numbers(2), numbers(3)]
    layout = torch.jagged if own else torch.strided
    got = slot.send([torch.nested.nested_tensor(rows, layout=layout)])[0]
    assert got.is_nested and got.layout is layout
    for row, want in zip(got.unbind(), rows, strict=True):
        assert_same(row, want)


def test_quantizer_is_kept(slot):
    with warnings.catch_warnings():
        # From torch 2.10 on.
        warnings.filterwarnings("ignore", ".*deprecated", UserWarning)
        sent = torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.quint8)
    got = slot.send(sent)
    assert (got.q_scale(), got.q_zero_point(), got.dtype) == (0.5, 1, torch.quint8)
    assert got.dequantize().tolist() == [1, 1, 1]


def test_conjugate_and_negative_bits_are_kept(slot):
    values = torch.tensor([[1 + 2j, 3 - 4j], [5j, 6]])
    for sent in (values.conj(), values.conj().imag, values.t().conj()):
        got = slot.send({"x": sent})["x"]
        assert_same(got, sent)
        assert got.tolist() == sent.tolist()


def test_tensors_arrive_writable_and_not_shared(slot):
    batch = {"small": numbers(3), "large": numbers(100_000), "bent": numbers(3, 3).t()}
    got = slot.send(batch)
    for tensor in tensors_of(got):
        assert not tensor.is_shared()
        tensor.fill_(1)
        assert tensor.eq(1).all()
    assert not batch["large"].eq(1).any()


@pytest.mark.parametrize("wrap", [dict, collections.OrderedDict], ids=["plain", "own"])
def test_large_tensors_view_the_slot_until_freed(slot, wrap):
    got = slot.send(wrap(small=numbers(3), large=numbers(10_000)))
    assert not slot.holds(got["small"])
    assert slot.holds(got["large"])
    part = got["large"][5:6]
    assert slot.views == 1
    got.clear()
    assert slot.views == 1
    del part
    gc.collect()
    assert slot.views == 0


@pytest.mark.parametrize("wrap", [list, Record], ids=["plain", "own"])
def test_tensor_made_in_slot_is_not_copied(slot, wrap):
    made = torch.from_numpy(slot.empty((100, 100), np.float64)).fill_(3)
    got = slot.send(wrap([made]))
    assert tensors_of(got)[0].data_ptr() == made.data_ptr()


def test_part_of_tensor_sends_only_its_bytes(slot):
    table = numbers(1 << 20)
    for part in (table[40:50], table[40:50].requires_grad_(), table[40:60:2]):
        before = slot.writer.used
        slot.send([part])
        assert slot.writer.used - before < 2000


def test_tensors_that_share_memory_share_it_again(slot):
    table = numbers(6, 10)
    whole, row, column, apart = slot.send([table, table[2], table[:, 1], numbers(3)])
    row.fill_(-1)
    column.fill_(-2)
    apart.fill_(-3)
    want = numbers(6, 10)
    want[2] = -1
    want[:, 1] = -2
    assert_same(whole, want)
    assert row[1] == -2


def test_repeated_tensor_stays_one_object(slot):
    shared, array = numbers(3), np.arange(4)
    batch = [shared, {"again": shared}, array, array]
    for send in (slot.send, through_torch):
        first, inner, one, other = send(batch)
        assert first is inner["again"]
        assert one is other


def test_recursive_list_arrives(slot):
    batch: list[Any] = [numbers(3)]
    batch.append(batch)
    got = slot.send(batch)
    assert got[1] is got


def test_sending_to_another_process_copies(slot):
    got = slot.send([numbers(100_000)])[0]
    want = got.tolist()
    there = through_torch(got)
    assert there.tolist() == want
    assert there.is_shared()
    assert not slot.holds(there)


def test_tensor_with_grad_history_raises_torch_error(slot):
    bad = numbers(3).requires_grad_() * 2
    with pytest.raises(RuntimeError) as expected:
        through_torch(bad)
    for batch in (bad, {"x": [bad]}, Record(bad)):
        with pytest.raises(RuntimeError) as caught:
            slot.send(batch)
        assert str(caught.value) == str(expected.value)


def test_unpicklable_batch_is_refused(slot):
    for batch in (threading.Lock(), {"x": numbers(2), "lock": threading.Lock()}):
        with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock' object"):
            slot.send(batch)


def test_lambdas_are_sent(slot):
    got = slot.send({"x": numbers(2), "f": lambda x: x + 1})
    assert got["f"](1) == 2


def test_backward_hook_gives_warning_like_torch(slot):
    leaf = numbers(3).requires_grad_()
    leaf.register_hook(lambda grad: grad)
    with pytest.warns(UserWarning, match="backward hook"):
        slot.send(leaf)


def test_default_device_has_no_effect(slot):
    sent = [numbers(3), numbers(3, 2).t(), torch.empty(0, 2)]
    want = slot.send(sent)
    with torch.device("meta"):
        got = slot.send(sent)
    assert_same(got, want)


KEYS = ("a", 1, 2.5, None)
CHANGES = {
    "whole": lambda x: x,
    "turned": lambda x: x.transpose(0, -1) if x.ndim else x,
    "thinned": lambda x: x[::2] if x.ndim else x,
    "tail": lambda x: x[1:] if x.ndim else x,
    "repeated": lambda x: x[None].expand(3, *x.shape),
}
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "dict": lambda parts: dict(zip(KEYS, parts, strict=False)),
    "ordered": lambda parts: collections.OrderedDict(zip("abcd", parts, strict=False)),
    "own": lambda parts: own_dict(**dict(zip("abcd", parts, strict=False))),
    "pair": lambda parts: Pair(parts[:1], parts[1:]),
    "record": Record,
}
# Descriptions of tensors, parameters, arrays and atoms, for `leaf_of`.
POOLS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(DTYPES),
            st.lists(st.integers(0, 4), max_size=4).map(tuple),
            st.sampled_from([*CHANGES]),
        ),
        st.sampled_from(FLOATS),
        st.integers(1, 5000),
        st.sampled_from(["text", 2.5, True, None]),
    ),
    min_size=1,
    max_size=4,
)
# Leaves are (number in the pool, change), containers (name, parts).
RECIPES = st.recursive(
    st.tuples(st.integers(0, 3), st.sampled_from(["whole", "tail"])),
    lambda parts: st.tuples(
        st.sampled_from([*CONTAINERS]), st.lists(parts, max_size=4)
    ),
    max_leaves=8,
)


def leaf_of(sort: Any) -> Any:
    """Return a member of a pool: a tensor, a parameter, an array or an atom."""
    if isinstance(sort, torch.dtype):
        return torch.nn.Parameter(torch.ones(3, dtype=sort))
    if type(sort) is int:
        return np.arange(sort)
    if type(sort) is tuple:
        dtype, shape, change = sort
        return CHANGES[change](numbers(*shape, dtype=dtype))
    return sort


def batch_of(recipe: Any, pool: list[Any]) -> Any:
    """Return a tree in which members of the pool, and parts of them, are repeated."""
    if type(recipe[0]) is str:
        return CONTAINERS[recipe[0]]([batch_of(part, pool) for part in recipe[1]])
    leaf = pool[recipe[0] % len(pool)]
    return CHANGES[recipe[1]](leaf) if type(leaf) is torch.Tensor else leaf


@hypothesis.given(POOLS, RECIPES)
@hypothesis.settings(max_examples=150, deadline=None)
def test_random_trees_match_torch_queue(pool, recipe):
    batch = batch_of(recipe, [leaf_of(sort) for sort in pool])
    slot = Slot()  # Keeps the slot alive longer than its views.
    got, want = slot.send(batch), through_torch(batch)
    assert_same(got, want)
    pairs = zip(tensors_of(got), tensors_of(want), strict=True)
    for (one, want_one), (other, want_other) in itertools.combinations(pairs, 2):
        assert (one is other) == (want_one is want_other)
        assert not _in_common(want_one, want_other) or _in_common(one, other)


def _in_common(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the memory ranges of two tensors overlap."""
    (begin, end), (other_begin, other_end) = map(_span, (one, other))
    return begin < other_end and other_begin < end


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((n - 1) * step for n, step in steps)
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.itemsize if tensor.numel() else begin
