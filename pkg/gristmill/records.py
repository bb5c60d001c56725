"""A record on its way through a pipeline: its data and where it came from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from gristmill._base.listing import listed
from gristmill._base.types import V

__all__ = ["Record", "RecordMetadata"]


class _Seeded:
    """Holds the key of a generator that nobody has asked for yet."""

    __slots__ = ("_philox_key",)

    _philox_key: int


@dataclasses.dataclass(slots=True)
class RecordMetadata(_Seeded):
    """Say which record this is and which random numbers belong to it.

    Args:
        index: Position in the sampler's order, over all shards and epochs.
        record_key: What the source is asked for. None once the record has been
            changed or combined with others.
        rng: Generator of this record's random numbers, or None without a seed.

    Metadata that a seeded sampler returns makes its generator when `rng` is first
    read: building one costs thirty times what the rest of the metadata does, and
    most records are never asked for it.

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

    # Python calls __getattr__ only for a slot that holds nothing, so this costs
    # metadata with a generator nothing.  Type checkers must not see it: they would
    # accept every attribute name.
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
    """Pair the data of a record with its metadata.

    Args:
        metadata: Which record this is.
        data: The element itself.

    Example:
        >>> Record(RecordMetadata(index=0), data=7).data
        7
    """

    metadata: RecordMetadata
    data: V


def __dir__() -> list[str]:
    return listed(__all__)
