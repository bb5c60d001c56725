"""Batches on JAX's devices."""

from typing import Any, assert_type

import jax
import numpy as np
import numpy.typing as npt

import gristmill as grain
from gristmill.jax import DevicePrefetch, prefetch_to_device


def row(x: int) -> npt.NDArray[np.float32]:
    return np.full(2, x, np.float32)


rows = grain.MapDataset.range(4).map(row).batch(2)
columns = grain.MapDataset.range(4).map(lambda x: {"x": row(x)}).batch(2)
anything = grain.load(np.zeros((4, 2)), num_epochs=1)

assert_type(prefetch_to_device(rows), DevicePrefetch[jax.Array])
assert_type(prefetch_to_device(columns, depth=3), DevicePrefetch[dict[str, jax.Array]])
assert_type(prefetch_to_device(anything, None), DevicePrefetch[Any])
assert_type(
    prefetch_to_device(numbers) if (numbers := [{"a": 1}]) else None,
    DevicePrefetch[Any] | None,
)
for array in prefetch_to_device(iter(rows)):
    assert_type(array, jax.Array)
iterator = prefetch_to_device(rows)
iterator.set_state(iterator.get_state())
