"""gristmill._hot.slot_writer and slot_reader: elements go through a slot."""

from __future__ import annotations

import collections
import ctypes
import gc
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gristmill._hot import slot_reader, slot_writer, views
from support import read_only
from support.core_slot import CoreSlot

KEYS = np.array([5, 6], np.int64)
LIMIT = 16 << 10
Point = collections.namedtuple("Point", "x y")


class OwnArray(np.ndarray):
    """An array type that must survive the transfer."""


class Own:
    """An object that holds a large array."""

    def __init__(self, data: Any) -> None:
        self.data = data


class Memory:
    """A dirty slot, its core record, and the number of views of it."""

    def __init__(self, nbytes: int = 1 << 20) -> None:
        self.raw = np.full(nbytes + 64, 0xA5, np.uint8)
        self.address = -(-int(self.raw.ctypes.data) // 64) * 64
        self.nbytes = nbytes
        self.core = CoreSlot()
        self.bases = 0

    def base(self) -> views.SlotView:
        self.bases += 1
        self.core.views += 1
        return views.SlotView(self.core.address)

    def holds(self, array: Any) -> bool:
        return bool(np.shares_memory(self.raw, array))


@pytest.fixture
def memory() -> Memory:
    return Memory()


def send(memory: Memory, element: Any, limit: int = LIMIT) -> Any:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    used = slot_writer.encode(writer, [(element, KEYS, (3, -4))], None)
    got, keys, position = slot_reader.decode(
        memory.address, used, 0, memory.base, limit
    )
    assert keys.dtype == np.int64 and keys.tolist() == [5, 6]
    assert position.dtype == np.int64 and position.tolist() == [3, -4]
    return got


def assert_same(got: Any, sent: Any) -> None:
    assert type(got) is type(sent)
    if isinstance(sent, dict):
        assert list(got) == list(sent)
        assert [type(key) for key in got] == [type(key) for key in sent]
        for key in sent:
            assert_same(got[key], sent[key])
    elif isinstance(sent, (list, tuple)):
        assert len(got) == len(sent)
        for one, other in zip(got, sent, strict=True):
            assert_same(one, other)
    elif isinstance(sent, np.ndarray):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert got.flags.writeable
        assert got.tolist() == sent.tolist()
    else:
        assert got == sent


ARRAYS = {
    "float": np.arange(12.0).reshape(3, 4),
    "bool": np.array([True, False]),
    "half": np.ones((2, 3), np.float16),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "text": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bcd"]),
    "time": np.array(["2020-01-01", "NaT"], "M8[ns]"),
    "span": np.array([1, 2], "m8[ms]"),
    "big-endian": np.arange(3, dtype=">i4"),
    "struct": np.array([(1, 2.5)], [("a", "i1"), ("b", "f8")]),
    "object": np.array([1, "x", None], object),
    "0-d": np.array(7, np.int16),
    "empty": np.empty((0, 3), np.uint8),
    "no text": np.zeros(3, "S0"),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "strided": np.arange(20)[::-3],
    "broadcast": np.broadcast_to(np.int8(3), (2, 5)),
    "large": np.arange(10_000.0),
    "large strided": np.arange(40_000.0)[::2],
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("limit", [0, LIMIT])
def test_arrays_survive(memory: Memory, name: str, limit: int) -> None:
    got = send(memory, {"x": ARRAYS[name]}, limit)
    assert_same(got, {"x": ARRAYS[name]})
    if name == "large":
        assert memory.holds(got["x"])


@pytest.mark.parametrize(
    "element",
    [
        1,
        None,
        "text",
        {},
        [],
        (),
        {"z": 1, "a": [1, (2.5, None)]},
        np.float32(2.5),
        np.datetime64("2020-01-01"),
        {"z": np.arange(3), "label": 5, "a": ["x", np.arange(2), ("y",)]},
        {1: np.arange(2)},
        {True: np.arange(2)},
        {"p": Point(np.arange(2), 3)},
        [np.arange(n) for n in range(40)],
        collections.OrderedDict(b=np.arange(2), a=1),
        bytearray(b"abc"),
    ],
    ids=repr,
)
def test_elements_survive(memory: Memory, element: Any) -> None:
    assert_same(send(memory, element), element)


def test_array_subclasses_survive(memory: Memory) -> None:
    sent = np.arange(5000.0).view(OwnArray)
    got = send(memory, {"x": sent})["x"]
    assert type(got) is OwnArray
    assert got.tolist() == sent.tolist()


def test_functions_are_pickled_by_value(memory: Memory) -> None:
    assert send(memory, {"f": lambda x: x + 1})["f"](1) == 2


def test_self_reference_is_pickled(memory: Memory) -> None:
    sent: list[Any] = [np.arange(2)]
    sent += [sent, sent]
    got = send(memory, sent)
    assert got[1] is got and got[2] is got
    assert got[0].tolist() == [0, 1]


@pytest.mark.parametrize("first", [1, np.arange(3)], ids=["plain", "with an array"])
def test_shared_containers_are_walked_once(memory: Memory, first: Any) -> None:
    shared: Any = {"a": 1}
    for _ in range(30):  # Makes 2**30 paths to the innermost container.
        shared = [shared, shared]
    got = send(memory, (first, shared))[1]
    for _ in range(30):
        assert got[0] is got[1]
        got = got[0]
    assert got == {"a": 1}


@pytest.mark.parametrize("first", [1, np.arange(3)], ids=["plain", "with an array"])
@pytest.mark.parametrize("shared", [{n: n for n in range(20)}, [*range(20)], {1: "x"}])
def test_shared_containers_without_arrays_stay_shared(
    memory: Memory, first: Any, shared: Any
) -> None:
    got = send(memory, [(first, shared), {"inner": (shared,)}, shared])
    assert got[0][1] is got[1]["inner"][0] is got[2]
    assert got[2] == shared


def test_arrays_made_in_the_slot_are_not_moved(memory: Memory) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    batch = writer.empty((2, 20_000), "f4")
    batch[...] = 1
    address = batch.ctypes.data
    assert address % 64 == 0 and memory.holds(batch)
    used = slot_writer.encode(writer, [([batch[1], batch[0]], KEYS, ())], None)
    assert used < batch.nbytes + 1024
    got, _, _ = slot_reader.decode(memory.address, used, 0, memory.base, LIMIT)
    assert [array.ctypes.data - address for array in got] == [80_000, 0]
    assert memory.bases == 1


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 2, 0), (1, 2, 0, 3)])
def test_views_of_one_array_arrive_separate(
    memory: Memory, order: tuple[int, ...]
) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    batch = writer.empty(30_000, "f4")
    batch[...] = np.arange(30_000)
    views_of_it = [batch, batch[:20_000], batch[10_000:], batch[25_000:]]
    parts = [views_of_it[number] for number in order]
    outputs = [(element, KEYS, ()) for element in (parts[:2], parts[2:])]
    used = slot_writer.encode(writer, outputs, None)
    got = [
        array
        for index in range(2)
        for array in slot_reader.decode(memory.address, used, index, memory.base, 0)[0]
    ]
    for array, number in zip(got, order, strict=True):
        assert array.tolist() == views_of_it[number].tolist()
        assert not any(np.shares_memory(array, o) for o in got if o is not array)


def test_views_keep_the_slot_and_copies_do_not(memory: Memory) -> None:
    sent = {"image": np.zeros(LIMIT + 1, np.uint8), "label": np.zeros(LIMIT, np.uint8)}
    got = send(memory, sent)
    image, label = got.pop("image"), got.pop("label")
    assert memory.holds(image) and not memory.holds(label)
    part = image[5:]
    del image
    gc.collect()
    assert (memory.core.views, memory.core.returned) == (1, 0)
    del part
    gc.collect()
    assert (memory.core.views, memory.core.returned) == (0, 1)


def test_copies_of_an_output_share_one_limit(memory: Memory) -> None:
    sent = [np.zeros(LIMIT, np.uint8) for _ in range(6)]
    got = send(memory, sent)
    assert [memory.holds(array) for array in got] == [False] * 4 + [True] * 2
    assert memory.bases == 1


def test_base_is_not_made_without_views(memory: Memory) -> None:
    send(memory, {"x": np.zeros(100), "y": 1, "z": Own(np.zeros(9))})
    assert memory.bases == 0


def test_large_arrays_in_objects_view_the_slot(memory: Memory) -> None:
    data = np.arange(20_000.0)
    got = send(memory, Own(data)).data
    assert memory.holds(got)
    assert got.tolist() == data.tolist()
    assert got.flags.writeable
    del got
    gc.collect()
    assert memory.core.returned


@pytest.mark.parametrize("container", read_only.CONTAINERS)
@pytest.mark.parametrize("name", read_only.ARRAYS)
def test_read_only_arrays_arrive_writable(
    memory: Memory, name: str, container: str
) -> None:
    element = read_only.CONTAINERS[container](read_only.ARRAYS[name]())
    # Sent like Grain's queue does.
    theirs = pickle.loads(pickle.dumps(element, 4))
    got = send(memory, element)
    assert read_only.writability(got) == read_only.writability(theirs)
    assert repr(got) == repr(element)


def test_read_only_array_in_object_views_the_slot(memory: Memory) -> None:
    data = read_only.locked(np.arange(20_000.0))
    got = send(memory, Own(data)).data
    assert memory.holds(got)
    assert not data.flags.writeable


def test_read_only_arrays_with_functions_arrive_writable(memory: Memory) -> None:
    # The lambda makes cloudpickle necessary.
    [array, function] = send(memory, Own([read_only.ARRAYS["bytes"](), lambda: 3])).data
    assert array.flags.writeable and function() == 3


def test_many_outputs_and_a_failure_are_read(memory: Memory) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    outputs = [({"x": np.full(i, i)}, np.arange(i), (i, 10)) for i in range(5)]
    used = slot_writer.encode(writer, outputs, (b"what happened", (9, 9)))
    for i in range(5):
        got, keys, position = slot_reader.decode(
            memory.address, used, i, memory.base, LIMIT
        )
        assert_same(got, {"x": np.full(i, i)})
        assert keys.tolist() == list(range(i))
        assert position.tolist() == [i, 10]
    got, keys, position = slot_reader.decode(
        memory.address, used, 5, memory.base, LIMIT
    )
    assert (got, keys.tolist(), position.tolist()) == (b"what happened", [], [9, 9])
    header = np.frombuffer(ctypes.string_at(memory.address, 16), np.uint32)
    assert header.tolist() == [int.from_bytes(b"GMS1", "little"), 6, 2, 1]


def test_each_position_has_its_own_length(memory: Memory) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    positions = [(1,), np.arange(8193)[::-1], (), np.arange(5, 7), (2, -3, 2**63 - 1)]
    outputs = [(i, KEYS, position) for i, position in enumerate(positions)]
    used = slot_writer.encode(writer, outputs, (b"what happened", np.arange(9000)))
    for i, position in enumerate([*positions, np.arange(9000)]):
        _, _, got = slot_reader.decode(memory.address, used, i, memory.base, LIMIT)
        assert got.dtype == np.int64 and got.tolist() == list(position)
    rows = np.frombuffer(ctypes.string_at(memory.address, used), np.uint8)
    table = int(rows[16:24].view(np.uint64)[0])
    spare = rows[table + 48 + 8 : table + 48 + 8 * 9000]
    assert not spare.any()


def test_position_longer_than_its_row_is_rejected(memory: Memory) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    used = slot_writer.encode(writer, [(1, KEYS, (1, 2)), (2, KEYS, (3,))], None)
    table = ctypes.c_uint64.from_address(memory.address + 16).value
    ctypes.c_uint32.from_address(memory.address + table + 44).value = 3
    with pytest.raises(ValueError, match=r"at most 2 integers .* got 3"):
        slot_reader.decode(memory.address, used, 0, memory.base, LIMIT)


def test_no_outputs_write_only_a_header(memory: Memory) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    assert slot_writer.encode(writer, [], None) <= 64
    header = np.frombuffer(ctypes.string_at(memory.address, 16), np.uint32)
    assert header.tolist() == [int.from_bytes(b"GMS1", "little"), 0, 0, 0]


def test_need_is_exact() -> None:
    outputs = [
        ({"x": np.arange(5000), "y": Own(np.arange(9000)), "z": "s" * 99}, KEYS, (1,))
    ]
    small = Memory(4096)
    writer = slot_writer.SlotWriter(small.address, small.nbytes)
    with pytest.raises(slot_writer.SlotTooSmallError) as caught:
        slot_writer.encode(writer, outputs, None)
    assert writer.used == 64
    assert not small.raw[64 + small.nbytes :].tolist().count(0)
    enough = Memory(caught.value.bytes)
    writer = slot_writer.SlotWriter(enough.address, enough.nbytes)
    used = slot_writer.encode(writer, outputs, None)
    assert used == caught.value.bytes
    got, _, _ = slot_reader.decode(enough.address, used, 0, enough.base, LIMIT)
    assert got["y"].data.tolist() == list(range(9000))
    short = Memory(caught.value.bytes - 1)
    with pytest.raises(slot_writer.SlotTooSmallError):
        slot_writer.encode(
            slot_writer.SlotWriter(short.address, short.nbytes), outputs, None
        )


def test_writer_hands_out_aligned_memory(memory: Memory) -> None:
    writer = slot_writer.SlotWriter(memory.address, 1024)
    first, second = writer.empty(10, "u1"), writer.empty((), "f8")
    assert (first.shape, first.ctypes.data) == ((10,), memory.address + 64)
    assert (second.shape, second.ctypes.data) == ((), memory.address + 128)
    assert (writer.used, writer.capacity) == (136, 1024)
    # Arrays that do not fit are copied when they are written.
    for shape, dtype in [(3, object), (2000, "u1")]:
        other = writer.empty(shape, dtype)
        assert (other.shape, other.dtype) == ((shape,), np.dtype(dtype))
        assert not memory.holds(other)
    assert writer.used == 136


@pytest.mark.parametrize("shape", [(-1,), (2**62, 8), (2**32, 2**32), (-2, -2)])
def test_writer_rejects_the_shapes_numpy_rejects(
    memory: Memory, shape: tuple[int, ...]
) -> None:
    writer = slot_writer.SlotWriter(memory.address, 1024)
    for empty in (writer.empty, np.empty):
        with pytest.raises(ValueError, match=r"negative dimensions|too big"):
            empty(shape, "f8")
    assert writer.used == 64


def test_unpicklable_element_does_not_change_the_writer(
    memory: Memory,
) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    generator = (x for x in [])
    with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
        slot_writer.encode(writer, [([np.arange(3), generator], KEYS, (1,))], None)
    assert writer.used == 64


def test_uncommitted_outputs_are_not_read(memory: Memory) -> None:
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    used = slot_writer.encode(writer, [(np.arange(9000), KEYS, (1,))], None)
    with pytest.raises(ValueError, match=r"at offset .* only 4096 bytes"):
        slot_reader.decode(memory.address, 4096, 0, memory.base, LIMIT)
    with pytest.raises(ValueError, match="must have output 1"):
        slot_reader.decode(memory.address, used, 1, memory.base, LIMIT)
    ctypes.memset(memory.address, 0, 4)
    with pytest.raises(ValueError, match="must have output 0"):
        slot_reader.decode(memory.address, used, 0, memory.base, LIMIT)


# Two outputs and an error, each part at the offset that the format defines.
GOLDEN_OUTPUTS = [
    (
        {"x": np.array([1, -2], "<i2"), "y": 7, "z": [np.array(0.5)]},
        np.array([5, 6]),
        (3, -4),
    ),
    (
        {"x": np.array([9], "<i2"), "y": None, "z": [np.array(1.5)]},
        np.array([8]),
        (5,),
    ),
]
GOLDEN_FAILURE = (b"why", (6,))
GOLDEN = bytes.fromhex(
    """
    474d533103000000020000000100000040000000000000000000000000000000
    0000000000000000000000000000000000000000000000000000000000000000
    48010000000000009400000000000000f0010000000000003100000000000000
    e00100000000000002000000020000000300000000000000fcffffffffffffff
    4801000000000000940000000000000090020000000000003000000000000000
    8802000000000000010000000100000005000000000000000000000000000000
    00000000000000000000000001000000c0020000000000000300000000000000
    0000000000000000000000000100000006000000000000000000000000000000
    0100feff00000000000000000000000000000000000000000000000000000000
    0000000000000000000000000000000000000000000000000000000000000000
    000000000000e03f80059589000000000000004b034b028c0178948c0179948c
    017a9487944b008c056e756d7079948c0564747970659493948c026932948988
    87945294284b038c013c944e4e4e4affffffff4affffffff4b007494624b0187
    944b0185944b034b0068068c02663894898887945294284b03680a4e4e4e4aff
    ffffff4affffffff4b007494624b008794859486948794879486942e00000000
    0500000000000000060000000000000000010000000000000200000000000000
    4001000000000000000000000000000080059506000000000000005d944b0761
    2e00000000000000000000000000000000000000000000000000000000000000
    0900000000000000000000000000000000000000000000000000000000000000
    0000000000000000000000000000000000000000000000000000000000000000
    000000000000f83f080000000000000040020000000000000100000000000000
    8002000000000000000000000000000080059505000000000000005d944e612e
    776879
    """
)


def test_outputs_are_written_as_golden_bytes() -> None:
    memory = Memory()
    memory.raw[:] = 0
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    used = slot_writer.encode(writer, GOLDEN_OUTPUTS, GOLDEN_FAILURE)
    assert ctypes.string_at(memory.address, used) == GOLDEN


def test_golden_bytes_are_read() -> None:
    memory = Memory()
    ctypes.memmove(memory.address, GOLDEN, len(GOLDEN))
    for i, (element, keys, position) in enumerate(GOLDEN_OUTPUTS):
        got, got_keys, got_position = slot_reader.decode(
            memory.address, len(GOLDEN), i, memory.base, LIMIT
        )
        assert_same(got, element)
        assert got_keys.tolist() == keys.tolist()
        assert got_position.tolist() == list(position)
    error, *_ = slot_reader.decode(memory.address, len(GOLDEN), 2, memory.base, LIMIT)
    assert error == b"why"


def test_bytes_are_written_unpickled() -> None:
    memory = Memory()
    writer = slot_writer.SlotWriter(memory.address, memory.nbytes)
    outputs = [(b"a record", np.array([3]), (1,)), (b"", np.array([4]), (2,))]
    used = slot_writer.encode(writer, outputs, None)
    # A header, two rows of 56 bytes, and the key and content of each.
    assert used == 64 + 2 * 56 + 8 + 8 + 8
    for i, (element, _, _) in enumerate(outputs):
        got, *_ = slot_reader.decode(memory.address, used, i, memory.base, LIMIT)
        assert type(got) is bytes and got == element
