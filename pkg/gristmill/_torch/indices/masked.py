"""A torch dataset that adds a mask to its elements: data, or padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gristmill._base.argument_checks import check_integer
from gristmill._base.object_repr import call_text
from gristmill._base.padding_masks import check_mask_key, with_mask
from gristmill._torch.bases import TorchDataset


class WithMask(TorchDataset[Any]):  # type: ignore[misc]
    """Adds a mask to the elements of a dataset: True for data, False for padding.

    Samplers with ``remainder="pad"`` need it.  With n elements, index i + n returns
    element i again, as padding.

    Args:
        dataset: A dataset with a length and items by index.
        key: The key of the bool in elements, which must be dicts.  None makes pairs
            ``(element, bool)`` of elements of any type.

    Raises:
        TypeError: The dataset has no length or items.  Reading an element raises it if
            there is a key and the element is not a dict.
        ValueError: Reading an element raises it if the element already has the key.
        IndexError: Reading an element raises it if the index is not in [0, 2 n).

    Example:
        >>> data = WithMask(["a", "b"])
        >>> data[1], data[3]
        (('b', True), ('b', False))
    """

    def __init__(self, dataset: Any, key: str | None = None) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                "WithMask needs a dataset with a length and items by index, got"
                f" {type(dataset).__name__}."
            )
        check_mask_key(key)
        self._dataset = dataset
        self._key = key

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        # Without this, a loop ends at an IndexError that the dataset raises.
        for index in range(2 * len(self)):
            yield self[index]

    def __getitem__(self, index: int) -> Any:
        inner_index, is_data = self._locate(index)
        return with_mask(self._dataset[inner_index], is_data, self._key)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the elements at some indices, read together if the dataset can."""
        located = [self._locate(index) for index in indices]
        inner_indices = [inner_index for inner_index, _ in located]
        getitems = getattr(self._dataset, "__getitems__", None)
        if getitems is None:
            elements = [self._dataset[inner_index] for inner_index in inner_indices]
        else:
            elements = getitems(inner_indices)
        return [
            with_mask(element, is_data, self._key)
            for element, (_, is_data) in zip(elements, located, strict=True)
        ]

    def __repr__(self) -> str:
        return call_text(self, self._dataset, key=self._key)

    def _locate(self, index: int) -> tuple[int, bool]:
        """Return the index in the dataset, and whether the element is data."""
        check_integer("An index of WithMask", index)
        length = len(self)
        if not 0 <= index < 2 * length:
            raise IndexError(
                f"An index of WithMask over {length} elements must be in [0,"
                f" {2 * length}), got {index}."
            )
        return index % length, index < length


def check_masked(dataset: Any) -> None:
    """Check that a dataset is a `WithMask`.

    Raises:
        TypeError: `dataset` is not a `WithMask`.
    """
    if not isinstance(dataset, WithMask):
        raise TypeError(
            "remainder='pad' needs a dataset that marks padding, got"
            f" {type(dataset).__name__}. Pass gristmill.torch.WithMask(dataset) to the"
            " sampler and to the loader."
        )
