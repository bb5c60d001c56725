"""Tests that batches in slots pass between libraries without a copy and stay valid."""

import gc
import random

import jax
import numpy as np
import pytest
import torch

import gristmill as g
import gristmill.torch as torch_adapter
from gristmill.jax import prefetch_to_device as to_jax

WIDTH = 300  # The size of a row is not a multiple of 64 bytes.


def loader(records=640, batch=64, **options):
    """Return a loader of batches {"x": rows, "y": labels}, both in slots.

    Row i of both is filled with i.
    """
    rows = np.arange(records)[:, None]
    return g.DataLoader(
        data_source=[
            {"x": np.full(WIDTH, i, np.float32), "y": np.full(WIDTH, i, np.int32)}
            for i in rows[:, 0]
        ],
        sampler=g.SequentialSampler(records),
        operations=[g.Batch(batch)],
        worker_count=2,
        streams=1,
        **options,
    )


def address_of(array):
    if isinstance(array, torch.Tensor):
        return array.data_ptr()
    if isinstance(array, jax.Array):
        return array.unsafe_buffer_pointer()
    return array.ctypes.data


INTO = {
    "numpy": np.from_dlpack,
    "torch": torch.from_dlpack,
    "jax": jax.dlpack.from_dlpack,
}
GIVERS = {
    "numpy": iter,
    "torch": lambda made: torch_adapter.to_device(made, "cpu"),
    "jax": to_jax,
}


@pytest.mark.multiprocess
@pytest.mark.parametrize("giver", GIVERS)
def test_leaves_are_aligned_and_convert_without_copy(giver):
    for number, batch in enumerate(GIVERS[giver](loader())):
        expected = np.arange(64 * number, 64 * number + 64)
        for leaf in batch.values():
            assert address_of(leaf) % 64 == 0
            for convert in INTO.values():
                view = convert(leaf)
                assert address_of(view) == address_of(leaf)
                assert (np.asarray(view) == expected[:, None]).all()
    assert number == 9


@pytest.mark.multiprocess
@pytest.mark.parametrize("seed", range(4))
def test_slot_is_reused_only_after_last_view_is_gone(seed):
    chance = random.Random(seed)
    held = []  # Pairs of (batch number, view).

    def check(number, view):
        rows = np.asarray(view)[:, 0]
        assert rows.tolist() == list(range(64 * number, 64 * number + len(rows)))

    batches = GIVERS[chance.choice([*GIVERS])](loader(records=6400))
    for number, batch in enumerate(batches):
        view = batch[chance.choice("xy")]
        del batch
        for _ in range(chance.randrange(4)):
            # JAX arrays are read-only, and NumPy does not export read-only arrays.
            if getattr(getattr(view, "flags", None), "writeable", True):
                view = chance.choice([*INTO.values()])(view)
            if not isinstance(view, jax.Array) and chance.random() < 0.3:
                view = view[: chance.randrange(1, len(view) + 1)]
        if chance.random() < 0.5:
            held.append((number, view))
        del view
        while len(held) > 12 or (held and chance.random() < 0.3):
            check(*held.pop(chance.randrange(len(held))))
    assert number == 99
    del batches
    gc.collect()
    for kept in held:
        check(*kept)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_batches_of_other_libraries_convert_by_dlpack(library):
    made = torch.arange(12.0) if library == "torch" else jax.numpy.arange(12.0)
    [placed] = to_jax([{"x": made}])
    [moved] = torch_adapter.to_device([{"x": made}], "cpu")
    assert np.asarray(placed["x"]).tolist() == list(range(12))
    assert moved["x"].tolist() == list(range(12))
    assert isinstance(placed["x"], jax.Array)
    assert isinstance(moved["x"], torch.Tensor)
    assert address_of(moved["x"]) == address_of(made)
