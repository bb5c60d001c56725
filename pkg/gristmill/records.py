"""A record in a pipeline: its data, and metadata about its origin."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from gristmill._base.lazy_names import public_names
from gristmill._base.types import V

__all__ = ["Record", "RecordMetadata"]


class _Seeded:
    """Holds the key of a generator that was not made yet."""

    __slots__ = ("_philox_key",)

    _philox_key: int


@dataclasses.dataclass(slots=True)
class RecordMetadata(_Seeded):
    """The identity of a record, and the generator of its random numbers.

    Args:
        index: The position in the sampler's order, over all shards and epochs.
        record_key: The key that is passed to the source.  None after the record was
            changed or combined with others.
        rng: The generator of this record's random numbers, or None without a seed.

    Metadata from a seeded sampler makes its generator when `rng` is first read.  A
    generator costs thirty times as much as the rest of the metadata, and most records
    do not use it.

    Example:
        >>> RecordMetadata(index=0, record_key=4)
        RecordMetadata(index=0, record_key=4, rng=None)
    """

    index: int
    record_key: int | None = None
    rng: np.random.Generator | None = None

    def remove_record_key(self) -> RecordMetadata:
        """Return this metadata without a record key, itself if it has none."""
        if self.record_key is None:
            return self
        return dataclasses.replace(self, record_key=None)

    def __str__(self) -> str:
        return (
            f"RecordMetadata(index={self.index}, record_key={self.record_key}, "
            f"rng={self.rng})"
        )

    # Python calls __getattr__ only for an empty slot, so metadata with a generator is
    # not slower.  Hide it from type checkers, which would accept every attribute name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "rng":
                rng = np.random.Generator(np.random.Philox(key=self._philox_key))
                self.rng = rng
                return rng
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}",
                name=name,
                obj=self,
            )


_new = object.__new__


def seeded_metadata(index: int, record_key: int, philox_key: int) -> RecordMetadata:
    """Return metadata whose generator is made from `philox_key` when first read."""
    metadata = _new(RecordMetadata)
    metadata.index = index
    metadata.record_key = record_key
    # mypy looks for the slot in the subclass only.
    metadata._philox_key = philox_key  # type: ignore[misc]
    return metadata


@dataclasses.dataclass(slots=True)
class Record(Generic[V]):
    """The data and the metadata of a record.

    Args:
        metadata: The identity of the record.
        data: The element itself.

    Example:
        >>> Record(RecordMetadata(index=0), data=7).data
        7
    """

    metadata: RecordMetadata
    data: V


def __dir__() -> list[str]:
    return public_names(__all__)
