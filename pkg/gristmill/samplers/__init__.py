"""Samplers choose the next record.  They use record numbers and read no data."""

from __future__ import annotations

from typing import Protocol

from gristmill._base.argument_checks import stands_for
from gristmill._base.lazy_names import public_names
from gristmill.records import RecordMetadata
from gristmill.samplers._distributed import DistributedSampler, WithMask
from gristmill.samplers._group_shuffle import GroupShuffleSampler
from gristmill.samplers._index import IndexSampler
from gristmill.samplers._sequential import SequentialSampler

__all__ = [
    "DistributedSampler",
    "GroupShuffleSampler",
    "IndexSampler",
    "Sampler",
    "SequentialSampler",
    "WithMask",
]


class Sampler(Protocol):
    """The interface of a sampler for a loader.

    ``__len__`` is optional: without it the loader searches for the first index that
    raises IndexError.  ``__repr__`` should contain everything that decides the order,
    because states are compared by it.

    A sampler may also have ``record_keys(first, step, count)``, which returns the
    record keys of the global indices first, first + step, ... as int64 of shape
    (count,), like `IndexSampler`; and ``interleaved(lanes)``, which returns the sampler
    in an order for readers that take turns, like `GroupShuffleSampler`.  Each stream of
    a loader is then computed by one worker.

    If it has ``set_epoch(epoch)``, a loader's `set_epoch` calls that on a copy of it.

    Example:
        >>> class Backwards:
        ...     def __getitem__(self, index):
        ...         if index >= 3:
        ...             raise IndexError
        ...         return RecordMetadata(index=index, record_key=2 - index)
        >>> options = {"sampler": Backwards(), "shard_options": gristmill.NoSharding()}
        >>> list(gristmill.DataLoader(data_source="abc", **options))
        ['c', 'b', 'a']
    """

    def __getitem__(self, index: int, /) -> RecordMetadata:
        """Return the metadata of a global index; raise IndexError after the last."""


def reads_in_blocks(sampler: object) -> bool:
    """Return whether ``sampler.record_keys`` matches ``sampler[index]``."""
    return stands_for(type(sampler), "record_keys", "__getitem__")


def __dir__() -> list[str]:
    return public_names(__all__)
