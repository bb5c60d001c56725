"""A torch dataset that marks its elements as data or padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import Dataset

from gristmill._base.checks import check_integer
from gristmill._base.describing import call_text
from gristmill._base.masks import check_mask_key, with_mask


class WithMask(Dataset[Any]):  # type: ignore[misc]
    """Elements of a dataset with a mask: True for data, False for padding.

    Samplers with ``remainder="pad"`` need it.  For n elements, index i + n is element i
    again, as padding.

    Args:
        dataset: A dataset with a length and items by index.
        key: The key of the mask in elements, which must be dicts; None returns pairs
            ``(element, bool)`` for elements of any type.

    Raises:
        TypeError: The dataset does not have a length or items. When an element is read:
            there is a key and the element is not a dict.
        ValueError: When an element is read: it already has the key.
        IndexError: When an element is read: the index is not in [0, 2 n).

    Example:
        >>> data = WithMask(["a", "b"])
        >>> data[1], data[3]
        (('b', True), ('b', False))
    """

    def __init__(self, dataset: Any, key: str | None = None) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                "WithMask takes a dataset with a length and items by index, got"
                f" {type(dataset).__name__}."
            )
        check_mask_key(key)
        self._dataset = dataset
        self._key = key

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        # Without this, a loop would end at an IndexError from the dataset.
        for index in range(2 * len(self)):
            yield self[index]

    def __getitem__(self, index: int) -> Any:
        place, real = self._place(index)
        return with_mask(self._dataset[place], real, self._key)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the elements at some indices, with one read if possible."""
        places = [self._place(index) for index in indices]
        read = getattr(self._dataset, "__getitems__", None)
        if read is None:
            elements = [self._dataset[place] for place, _ in places]
        else:
            elements = read([place for place, _ in places])
        return [
            with_mask(element, real, self._key)
            for element, (_, real) in zip(elements, places, strict=True)
        ]

    def __repr__(self) -> str:
        return call_text(self, self._dataset, key=self._key)

    def _place(self, index: int) -> tuple[int, bool]:
        """Return the element number of an index, and whether it is data."""
        check_integer("An index of WithMask", index)
        length = len(self)
        if not 0 <= index < 2 * length:
            raise IndexError(
                f"An index of WithMask over {length} elements must be in [0,"
                f" {2 * length}), got {index}."
            )
        return index % length, index < length


def check_masked(dataset: Any) -> None:
    """Raise TypeError if a dataset is not a `WithMask`."""
    if not isinstance(dataset, WithMask):
        raise TypeError(
            "remainder='pad' needs elements that say whether they are data: pass"
            " gristmill.torch.WithMask(dataset) to the sampler and to the loader, got"
            f" {type(dataset).__name__}."
        )
