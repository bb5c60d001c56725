"""Elements of Gristmill's loaders and datasets as torch tensors.

Record sources and `MapDataset` need no adapter: they have ``len``, ``[]`` and
``__getitems__``, so torch accepts them as map-style datasets.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Never, overload

import numpy as np
import torch
from torch.utils.data import get_worker_info

from gristmill._base.object_repr import call_text
from gristmill._base.types import Array, K, N, T
from gristmill._engine.tracebacks import cut_own_frames
from gristmill._torch.bases import TorchIterableDataset
from gristmill.checkpoint import Checkpointable


class TensorIterator(Checkpointable, Iterator[T]):
    """Iterates over the elements of an iterator with arrays converted to tensors.

    Args:
        iterator: Yields trees of dicts, lists and tuples with array leaves.
        whole: The iterable that `iterator` came from, used for ``len()``. By default
            `iterator` itself.

    Example:
        >>> ds = gristmill.MapDataset.range(6).batch(3).to_iter_dataset()
        >>> tensors = TensorIterator(iter(ds))
        >>> next(tensors)
        tensor([0, 1, 2])
        >>> tensors.get_state()
        {'next_index': 1}
    """

    def __init__(self, iterator: Iterator[Any], whole: Any = None) -> None:
        self._iterator = iterator
        self._whole: Any = iterator if whole is None else whole

    def __len__(self) -> int:
        """Return the number of elements of a full pass, as torch's loaders do.

        Raises:
            TypeError: The length is unknown: `as_tensors` received an iterator, or an
                iterable without a length.
        """
        return len(self._whole)

    def __bool__(self) -> bool:
        # Otherwise Python would call `__len__`, which may raise or return 0.
        return True

    def __next__(self) -> T:
        try:
            element: T = as_tensor_tree(next(self._iterator))
        except Exception as error:
            cut_own_frames(error)
            raise
        return element

    def __repr__(self) -> str:
        return call_text(self, self._iterator)

    def get_state(self) -> Any:
        """Return the state of the wrapped iterator."""
        return self._iterator.get_state()  # type: ignore[attr-defined]

    def set_state(self, state: Any) -> None:
        """Set the state of the wrapped iterator.

        Args:
            state: The result of `get_state`.
        """
        self._iterator.set_state(state)  # type: ignore[attr-defined]

    @property
    def _fits_all_processes(self) -> bool:
        wrapped = self._iterator
        return isinstance(wrapped, Checkpointable) and wrapped._fits_all_processes

    def start_prefetch(self) -> None:
        """Let the iterator start computing in the background."""
        self._iterator.start_prefetch()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the iterator."""
        self._iterator.close()  # type: ignore[attr-defined]


# Any also matches Never, so elements of an unknown type select this overload.
@overload
def as_tensors(iterator: Iterable[Never]) -> TensorIterator[Any]: ...


@overload
def as_tensors(iterator: Iterable[Array[N]]) -> TensorIterator[torch.Tensor]: ...


@overload
def as_tensors(
    iterator: Iterable[dict[K, Never]],
) -> TensorIterator[dict[K, Any]]: ...


@overload
def as_tensors(
    iterator: Iterable[dict[K, Array[N]]],
) -> TensorIterator[dict[K, torch.Tensor]]: ...


@overload
def as_tensors(iterator: Iterable[Any]) -> TensorIterator[Any]: ...


def as_tensors(iterator: Any) -> TensorIterator[Any]:
    """Iterate over elements with their arrays as tensors, without copying.

    A tensor keeps the memory of its batch alive.  Arrays that a tensor cannot view
    (read-only ones, negative strides, foreign byte order) are copied.  Leaves without
    a torch dtype (strings, dates, objects) are unchanged.

    Args:
        iterator: A `DataLoaderIterator` or any iterator or iterable of elements.

    Returns:
        An iterator over the elements; it has the state of `iterator`.

    Example:
        >>> ds = gristmill.MapDataset.range(6).batch(3).to_iter_dataset()
        >>> list(as_tensors(ds))
        [tensor([0, 1, 2]), tensor([3, 4, 5])]
    """
    return TensorIterator(iter(iterator), iterator)


class AsIterable(TorchIterableDataset[Any]):  # type: ignore[misc]
    """Wraps a Gristmill `DataLoader` or `IterDataset` as a torch `IterableDataset`.

    Use it for trainers that require a torch loader.  Pass ``batch_size=None`` to that
    loader, because the elements are already batches, and no workers, because Gristmill
    runs its own.

    Args:
        elements: An iterable of trees with array leaves, which become tensors.  It is
            iterated over once per epoch.

    Raises:
        RuntimeError: It was iterated over in a worker of a loader. Each worker would
            yield all elements.

    Example:
        >>> import gristmill as g
        >>> from gristmill.torch import DataLoader
        >>> numbers = g.MapDataset.range(6).batch(3).to_iter_dataset()
        >>> [batch.tolist() for batch in DataLoader(AsIterable(numbers), None)]
        [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(self, elements: Any) -> None:
        self._elements = elements
        self._epoch: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next ``iter()``: its order and random draws.

        A loader's `set_epoch` calls this.  It has no effect if the elements have
        neither ``set_epoch`` nor ``at_epoch``.

        Args:
            epoch: From 0; see `gristmill.DataLoader.set_epoch` and
                `gristmill.IterDataset.at_epoch`.
        """
        self._epoch = epoch

    def __repr__(self) -> str:
        return call_text(self, self._elements)

    def __iter__(self) -> Iterator[Any]:
        if (worker := get_worker_info()) is not None:
            raise RuntimeError(
                "AsIterable needs a loader with num_workers=0, got"
                f" num_workers={worker.num_workers}: each worker would return all"
                " elements. Pass num_workers=0; Gristmill starts its own workers."
            )
        elements = self._elements
        if self._epoch is not None and hasattr(elements, "set_epoch"):
            elements.set_epoch(self._epoch)
        elif self._epoch is not None and hasattr(elements, "at_epoch"):
            elements = elements.at_epoch(self._epoch)
        return as_tensors(elements)


def as_tensor_tree(element: Any) -> Any:
    """Return one element with its arrays as tensors.

    Args:
        element: A tree with array leaves, such as a dict of arrays.

    Returns:
        A tree of the same structure.

    Example:
        >>> as_tensor_tree({"x": np.arange(3), "name": "a"})
        {'x': tensor([0, 1, 2]), 'name': 'a'}
    """
    return map_leaves(_as_tensor, element)


def as_tensor_leaf(leaf: Any) -> Any:
    """Return an array of any library as a tensor, without a copy if possible."""
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray | torch.Tensor):
        return torch.from_dlpack(leaf)
    return _as_tensor(leaf)


def is_plain(leaf: Any) -> bool:
    """Return whether a leaf is an ordinary CPU tensor, fully described by its values.

    It is strided, requires no gradient, is not quantized and has no lazy conjugate or
    negative bit.
    """
    return (
        type(leaf) is torch.Tensor
        and leaf.device.type == "cpu"
        and leaf.layout is torch.strided
        and not leaf.requires_grad
        and not leaf.is_quantized
        and not leaf.is_conj()
        and not leaf.is_neg()
    )


def map_leaves(function: Callable[[Any], Any], element: Any) -> Any:
    """Return an element with the function applied to every leaf.

    Containers are mappings, lists, tuples and named tuples.  A mutable mapping keeps
    its class; any other mapping becomes a dict.  An object with a method ``to``, such
    as a `PackedSequence`, is a leaf even if it is a tuple.
    """
    # Checked first: most leaves are arrays, and isinstance is slow for mappings.
    if isinstance(element, torch.Tensor | np.ndarray):
        return function(element)
    if isinstance(element, dict | MutableMapping):
        mapped = copy.copy(element)  # Keeps the factory of a defaultdict.
        for key, value in element.items():
            mapped[key] = map_leaves(function, value)
        return mapped
    if isinstance(element, Mapping):
        return {key: map_leaves(function, value) for key, value in element.items()}
    if hasattr(element, "to"):
        return function(element)
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return type(element)(*(map_leaves(function, value) for value in element))
    if type(element) in (list, tuple):
        return type(element)(map_leaves(function, value) for value in element)
    return function(element)


def _as_tensor(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype.name == "bfloat16":
        return _as_tensor(array.view(np.uint16)).view(torch.bfloat16)
    if array.dtype.kind not in "biufc":
        return array
    if not array.flags.writeable or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        return torch.from_numpy(array)
    except ValueError:  # Negative strides.
        return torch.from_numpy(array.copy())
    except TypeError:  # Torch does not have the dtype.
        return array
