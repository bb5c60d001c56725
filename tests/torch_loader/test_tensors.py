"""Tests of elements as torch tensors: shared memory, lifetime, types and state."""

import collections
import gc

import numpy as np
import pytest

import gristmill as g
from support.remembered import Remembered

torch = pytest.importorskip("torch")
adapter = pytest.importorskip("gristmill.torch")

Pair = collections.namedtuple("Pair", ["image", "label"])


def loader(*, records=640, batch=64, **options):
    """Return a loader of batches of 64 KiB; row i is float32 filled with i."""
    rows = np.repeat(np.arange(records, dtype=np.float32)[:, None], 256, axis=1)
    return g.DataLoader(
        data_source=rows,
        sampler=g.SequentialSampler(records),
        operations=[g.Batch(batch)],
        **options,
    )


def one(element):
    [converted] = adapter.as_tensors([element])
    return converted


DTYPES = [
    np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.uint32,
    np.uint64, np.float16, np.float32, np.float64, np.complex64, np.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_arrays_become_tensors_in_place(dtype, shape):
    array = np.ones(shape, dtype)
    tensor = one(array)
    assert tensor.shape == shape
    assert tensor.numpy().dtype == dtype
    assert tensor.data_ptr() == array.ctypes.data or not array.size
    assert bool((tensor.numpy() == array).all())


def test_bfloat16_keeps_its_bits():
    dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0, 3.0e38], dtypes.bfloat16)
    tensor = one(array)
    assert tensor.dtype == torch.bfloat16
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.float().tolist() == array.astype(np.float32).tolist()


@pytest.mark.parametrize(
    "leaf",
    [
        np.array(["a", "bc"]),
        np.array([b"a"]),
        np.array([None, 1], dtype=object),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.zeros(2, [("x", "i4")]),
        "text",
        b"bytes",
        7,
        None,
        np.float32(1),
    ],
)
def test_leaves_without_torch_type_are_unchanged(leaf):
    assert one({"leaf": leaf})["leaf"] is leaf


def test_containers_keep_their_type():
    array = np.zeros(2)
    ordered = collections.OrderedDict(b=array, a=array)
    grouped = collections.defaultdict(list, x=array)
    found = one({"pair": Pair(array, 3), "list": [array, (array,)], "o": ordered})
    assert isinstance(found["pair"], Pair)
    assert isinstance(found["pair"].image, torch.Tensor)
    assert found["pair"].label == 3
    assert isinstance(found["list"][1], tuple)
    assert isinstance(found["list"][1][0], torch.Tensor)
    assert type(found["o"]) is collections.OrderedDict
    assert list(found["o"]) == ["b", "a"]
    assert isinstance(found["o"]["a"], torch.Tensor)
    assert one(grouped).default_factory is list
    # The given element does not change.
    assert isinstance(ordered["a"], np.ndarray)


@pytest.mark.parametrize(
    "array",
    [
        np.frombuffer(np.arange(4, dtype=np.int32).tobytes(), np.int32),
        np.arange(4)[::-1],
        np.arange(4, dtype=">i4"),
    ],
    ids=["read only", "negative stride", "foreign byte order"],
)
def test_arrays_that_tensors_cannot_view_are_copied(array):
    tensor = one(array)
    assert tensor.tolist() == array.tolist()
    tensor[0] = 9
    assert array[0] != 9


def test_strided_arrays_are_viewed():
    array = np.arange(24).reshape(4, 6)[::2, 1::2]
    tensor = one(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.tolist() == array.tolist()


@pytest.mark.multiprocess
def test_batches_from_workers_are_not_copied():
    remembered = Remembered(loader(worker_count=2))
    tensors = list(adapter.as_tensors(remembered))
    assert [tensor.data_ptr() for tensor in tensors] == remembered.addresses
    assert len(tensors) == 10


@pytest.mark.multiprocess
@pytest.mark.parametrize("every", [1, 3])
def test_kept_tensors_stay_valid_while_slots_are_reused(every):
    tensors = adapter.as_tensors(loader(records=6400, worker_count=2, streams=1))
    kept = [pair for pair in enumerate(tensors) if pair[0] % every == 0]
    del tensors
    gc.collect()
    assert len(kept) == len(range(0, 100, every))
    for number, tensor in kept:
        expected = torch.arange(64 * number, 64 * number + 64)[:, None]
        assert bool((tensor == expected).all())


@pytest.mark.multiprocess
def test_tensors_outlive_the_loader_and_can_be_changed():
    tensors = adapter.as_tensors(loader(records=6400, worker_count=2, streams=1))
    kept = []
    for number, tensor in enumerate(tensors):
        if number == 50:
            break
        kept.append(tensor[:1])
        tensor.add_(1)
    tensors.close()
    del tensors, tensor
    gc.collect()
    found = [part[0, 0].item() for part in kept]
    assert found == [64 * number + 1 for number in range(50)]


def test_state_matches_plain_iterator():
    made = loader()
    tensors, plain = adapter.as_tensors(made), iter(made)
    next(tensors), next(plain)
    state = tensors.get_state()
    assert state == plain.get_state()
    rest = [tensor[:, 0].tolist() for tensor in tensors]
    tensors.set_state(state)
    assert [tensor[:, 0].tolist() for tensor in tensors] == rest
    assert len(rest) == 9
