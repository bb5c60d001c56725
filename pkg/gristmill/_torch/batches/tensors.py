"""Elements of Gristmill's loaders and datasets as torch tensors.

Record sources and `MapDataset` need nothing: by ``len``, ``[]`` and
``__getitems__`` they are map-style datasets as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Never, overload

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from gristmill._base.describing import call_text
from gristmill._base.types import Array, K, N, T
from gristmill._engine.tracebacks import cut
from gristmill.checkpoint import Checkpointable


class TensorIterator(Checkpointable, Iterator[T]):
    """Gives the elements of an iterator with tensors in place of its arrays.

    Args:
        iterator: Gives trees of dicts, lists and tuples with array leaves.
        whole: What it iterates over, which may have a length.

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
        """Return how many elements there are from the beginning, as torch counts them.

        Raises:
            TypeError: That is not known: `as_tensors` was given an iterator, or what it
                was given has no length.
        """
        return len(self._whole)

    def __bool__(self) -> bool:
        return True

    def __next__(self) -> T:
        try:
            element: T = as_tensor_tree(next(self._iterator))
        except Exception as error:
            cut(error)
            raise
        return element

    def __repr__(self) -> str:
        return call_text(self, self._iterator)

    def get_state(self) -> Any:
        """The iterator's own state."""
        return self._iterator.get_state()  # type: ignore[attr-defined]

    def set_state(self, state: Any) -> None:
        """Set the iterator's own state."""
        self._iterator.set_state(state)  # type: ignore[attr-defined]

    def start_prefetch(self) -> None:
        """Let the iterator start computing in the background."""
        self._iterator.start_prefetch()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the iterator."""
        self._iterator.close()  # type: ignore[attr-defined]


# Any alone is Never, too: what nothing is known of comes here.
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
    (read-only ones, negative strides, foreign byte order) are copied.  Leaves that
    torch has no dtype for (strings, dates, objects) stay what they are.

    Args:
        iterator: A `DataLoaderIterator` or any iterator or iterable of elements.

    Example:
        >>> ds = gristmill.MapDataset.range(6).batch(3).to_iter_dataset()
        >>> list(as_tensors(ds))
        [tensor([0, 1, 2]), tensor([3, 4, 5])]
    """
    return TensorIterator(iter(iterator), iterator)


class AsIterable(IterableDataset[Any]):  # type: ignore[misc]
    """A Gristmill `DataLoader` or `IterDataset` where torch wants an `IterableDataset`.

    Give it to a loader, for a trainer that insists on one, with ``batch_size=None``:
    its elements are batches already.  Workers are Gristmill's own; the loader has none.

    Args:
        elements: Gives an iterator, for each epoch, over trees with array leaves, which
            become tensors.

    Raises:
        RuntimeError: When iterated over in a worker of a loader: each would give all
            elements.

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
        """Let the next ``iter()`` give another epoch: its order and random draws.

        A loader's `set_epoch` calls it.  Elements of another library begin again as
        their own ``iter()`` says.

        Args:
            epoch: From 0; see `gristmill.DataLoader.set_epoch` and
                `gristmill.IterDataset.at_epoch`.
        """
        self._epoch = epoch

    def __repr__(self) -> str:
        return call_text(self, self._elements)

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "AsIterable was given to a loader with workers, each of which would"
                " give all elements. Let num_workers be 0; Gristmill has workers of"
                " its own."
            )
        elements = self._elements
        if self._epoch is not None and hasattr(elements, "set_epoch"):
            elements.set_epoch(self._epoch)
        elif self._epoch is not None and hasattr(elements, "at_epoch"):
            elements = elements.at_epoch(self._epoch)
        return as_tensors(elements)


def as_tensor_tree(element: Any) -> Any:
    """One element with its arrays as tensors.

    Example:
        >>> as_tensor_tree({"x": np.arange(3), "name": "a"})
        {'x': tensor([0, 1, 2]), 'name': 'a'}
    """
    return map_leaves(_as_tensor, element)


def as_tensor_leaf(leaf: Any) -> Any:
    """Return an array of any library as a tensor, in place where that can be."""
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray | torch.Tensor):
        return torch.from_dlpack(leaf)
    return _as_tensor(leaf)


def is_plain(leaf: Any) -> bool:
    """Whether a leaf is a tensor on the CPU that is no more than its elements."""
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
    """Return an element with the function applied to everything in its containers.

    Containers are mappings, lists, tuples and named tuples; a mapping keeps its class
    where it can be changed and is a dict otherwise.  What moves itself by a method
    ``to``, such as a `PackedSequence`, is a leaf although it is a tuple.
    """
    if isinstance(element, torch.Tensor | np.ndarray):
        return function(element)  # Most are: asked first, since mappings are slow to.
    if isinstance(element, dict | MutableMapping):
        mapped = copy.copy(element)  # Keeps the factory of a defaultdict, too.
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
    except ValueError:
        return torch.from_numpy(array.copy())
    except TypeError:
        return array
