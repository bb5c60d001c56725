"""Batches on JAX devices, ahead of need.  Imports jax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Never, overload

import jax
import numpy as np

from gristmill._base.listing import listed
from gristmill._base.types import Array, K, T
from gristmill._engine.ahead import Ahead

__all__ = ["DevicePrefetch", "prefetch_to_device"]


class DevicePrefetch(Ahead[T]):
    """Puts batches on devices before they are asked for.

    `get_state` is the position after the last batch that was given out, not after
    those that wait on the device: save this iterator, and not the one below.  An
    exception is raised in its turn, after the batches before it.

    Args:
        iterator: Gives trees with array leaves.
        sharding: Where leaves go, as in `prefetch_to_device`.
        depth: Batches on the device at a time, the one given out included, at
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
        self._sharding = jax.tree.map(_resolved, sharding, is_leaf=_is_place)

    def _place(self, batch: Any) -> Any:
        # A place stands for everything below it in the batch.
        return jax.tree.map(
            lambda place, part: jax.tree.map(lambda leaf: _put(leaf, place), part),
            self._sharding,
            batch,
            is_leaf=_is_place,
        )


# Any alone is Never, too: what nothing is known of comes here.
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
    """Iterate over batches as `jax.Array` leaves, placed before they are asked for.

    On the CPU, with no `sharding`, an array that JAX can represent shares the
    memory of the batch: it is not copied, and the memory stays alive with it.  Arrays
    of other libraries, such as torch's tensors, come in by DLPack.

    Args:
        iterator: A `DataLoaderIterator` or any iterator or iterable of trees.
        sharding: Where leaves go.  With a `jax.sharding.Sharding` each process gives
            its own part of the global batch, which
            `jax.make_array_from_process_local_data` makes an array of; so it does
            with a `PartitionSpec`, which is for the mesh set by `jax.set_mesh`. A
            `jax.Device` takes leaves whole; None stands for the default device.
            A tree of these, such as a dict with an entry for each key of a batch,
            places each part in its own way; it may end above the leaves.
        depth: Batches on the device at a time, the one given out included, at
            least 1.

    Raises:
        ValueError: `depth` is less than 1; a `PartitionSpec` is given but no mesh is
            set; when a batch is asked for, the tree of `sharding` does not fit it.

    Example:
        >>> import numpy as np
        >>> from gristmill.jax import prefetch_to_device
        >>> for batch in prefetch_to_device([{"x": np.arange(3)}]):
        ...     print(batch["x"] + 1)
        [1 2 3]
    """
    return DevicePrefetch(iter(iterator), sharding, depth)


def _is_place(part: Any) -> bool:
    """Whether part of a tree of shardings says where leaves go."""
    kinds = (jax.sharding.Sharding, jax.sharding.PartitionSpec, jax.Device)
    return part is None or isinstance(part, kinds)


def _resolved(place: Any) -> Any:
    """The place, with a mesh where it had none."""
    if not isinstance(place, jax.sharding.PartitionSpec):
        return place
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        raise ValueError(
            f"{place} says how to split arrays over a mesh, but no mesh is set. Call"
            " jax.set_mesh first, or pass a jax.sharding.NamedSharding."
        )
    return jax.sharding.NamedSharding(mesh, place)


def _put(leaf: Any, place: Any) -> Any:
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray | jax.Array):
        leaf = jax.dlpack.from_dlpack(leaf)
    if isinstance(place, jax.sharding.Sharding):
        return jax.make_array_from_process_local_data(place, leaf)
    if place is not None or not _shareable(leaf):
        return jax.device_put(leaf, place)
    return jax.dlpack.from_dlpack(leaf)


def _shareable(leaf: Any) -> bool:
    """Whether JAX may view this array in place, on its default device."""
    chosen = jax.config.jax_default_device is not None
    if not isinstance(leaf, np.ndarray) or chosen or jax.default_backend() != "cpu":
        return False
    if leaf.dtype.kind not in "biufc" or leaf.size == 0 or not leaf.flags.writeable:
        return False
    same_dtype = jax.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype
    return same_dtype and leaf.flags.c_contiguous and leaf.ctypes.data % 64 == 0


def __dir__() -> list[str]:
    return listed(__all__)
