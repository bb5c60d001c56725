"""Places batches on JAX devices ahead of need.  Imports jax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Never, overload

import jax
import numpy as np

from gristmill._base.lazy_names import public_names
from gristmill._base.types import Array, K, T
from gristmill._engine.device_prefetch import DevicePrefetchIterator

__all__ = ["DevicePrefetch", "prefetch_to_device"]


class DevicePrefetch(DevicePrefetchIterator[T]):
    """Places batches on devices before the caller requests them.

    `get_state` returns the position after the last batch returned, not after the
    batches that wait on the device.  Save the state of this iterator, not of
    `iterator`.  An exception is raised in its turn, after the batches before it.

    Args:
        iterator: An iterator over trees with array leaves.
        sharding: The places of leaves, see `prefetch_to_device`.
        depth: Batches on the device at a time, including the one returned last; at
            least 1.

    Example:
        >>> ds = gristmill.MapDataset.range(6).batch(3).to_iter_dataset()
        >>> batches = DevicePrefetch(iter(ds), sharding=None, depth=2)
        >>> print(next(batches) + 1)
        [1 2 3]
        >>> batches.get_state()
        {'next_index': 1}
    """

    def __init__(self, iterator: Iterator[Any], sharding: Any, depth: int) -> None:
        super().__init__(iterator, depth)
        self._sharding = jax.tree.map(_resolve, sharding, is_leaf=_is_place)

    def _place(self, batch: Any) -> Any:
        # A place applies to all leaves below it in the batch.
        return jax.tree.map(
            lambda place, part: jax.tree.map(lambda leaf: _put(leaf, place), part),
            self._sharding,
            batch,
            is_leaf=_is_place,
        )


# Any matches Never, so elements of unknown type select this overload.
@overload
def prefetch_to_device(
    iterator: Iterable[Never], sharding: Any = None, depth: int = 2
) -> DevicePrefetch[Any]: ...


@overload
def prefetch_to_device(
    iterator: Iterable[Array[Any]], sharding: Any = None, depth: int = 2
) -> DevicePrefetch[jax.Array]: ...


@overload
def prefetch_to_device(
    iterator: Iterable[dict[K, Never]], sharding: Any = None, depth: int = 2
) -> DevicePrefetch[dict[K, Any]]: ...


@overload
def prefetch_to_device(
    iterator: Iterable[dict[K, Array[Any]]], sharding: Any = None, depth: int = 2
) -> DevicePrefetch[dict[K, jax.Array]]: ...


@overload
def prefetch_to_device(
    iterator: Iterable[Any], sharding: Any = None, depth: int = 2
) -> DevicePrefetch[Any]: ...


def prefetch_to_device(
    iterator: Iterable[Any], sharding: Any = None, depth: int = 2
) -> DevicePrefetch[Any]:
    """Iterate over batches with `jax.Array` leaves, placed ahead of need.

    On the CPU and without `sharding`, an array that JAX can represent shares the memory
    of the batch: it is not copied, and it keeps the memory alive.  Arrays of other
    libraries, such as torch's tensors, are converted with DLPack.

    Args:
        iterator: A `DataLoaderIterator` or any iterator or iterable of trees.
        sharding: The places of leaves.  With a `jax.sharding.Sharding`, each process
            has its own part of the global batch, and
            `jax.make_array_from_process_local_data` makes the array.  A
            `PartitionSpec` does the same for the mesh set by `jax.set_mesh`.  A
            `jax.Device` gets whole leaves, and None is the default device.  A tree of
            these places each part separately, such as a dict with an entry for each key
            of a batch; it may end above the leaves.
        depth: Batches on the device at a time, including the one returned last; at
            least 1.

    Returns:
        An iterator over the batches, which has the state of `iterator`.

    Raises:
        ValueError: `depth` is less than 1, or a `PartitionSpec` is given but no mesh is
            set.  Raised by `next` if the tree of `sharding` does not fit a batch.

    Example:
        >>> import numpy as np
        >>> from gristmill.jax import prefetch_to_device
        >>> for batch in prefetch_to_device([{"x": np.arange(3)}]):
        ...     print(batch["x"] + 1)
        [1 2 3]
    """
    return DevicePrefetch(iter(iterator), sharding, depth)


def _is_place(part: Any) -> bool:
    """Return whether a part of a tree of shardings is a place for leaves."""
    kinds = (jax.sharding.Sharding, jax.sharding.PartitionSpec, jax.Device)
    return part is None or isinstance(part, kinds)


def _resolve(place: Any) -> Any:
    """Return a place, with a mesh if it is a `PartitionSpec`."""
    if not isinstance(place, jax.sharding.PartitionSpec):
        return place
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        raise ValueError(
            f"sharding needs a mesh for {place}, got none: no mesh is set. Call"
            " jax.set_mesh first, or pass a jax.sharding.NamedSharding."
        )
    return jax.sharding.NamedSharding(mesh, place)


def _put(leaf: Any, place: Any) -> Any:
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray | jax.Array):
        leaf = jax.dlpack.from_dlpack(leaf)
    if isinstance(place, jax.sharding.Sharding):
        return jax.make_array_from_process_local_data(place, leaf)
    if place is not None or not _is_shareable(leaf):
        return jax.device_put(leaf, place)
    return jax.dlpack.from_dlpack(leaf)


def _is_shareable(leaf: Any) -> bool:
    """Return whether JAX can view an array without a copy, on its default device."""
    has_default_device = jax.config.jax_default_device is not None
    if (
        not isinstance(leaf, np.ndarray)
        or has_default_device
        or jax.default_backend() != "cpu"
    ):
        return False
    if leaf.dtype.kind not in "biufc" or leaf.size == 0 or not leaf.flags.writeable:
        return False
    keeps_dtype = jax.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype
    return keeps_dtype and leaf.flags.c_contiguous and leaf.ctypes.data % 64 == 0


def __dir__() -> list[str]:
    return public_names(__all__)
