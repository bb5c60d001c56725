"""Which record comes next.  A sampler knows numbers of records and reads no data."""

from __future__ import annotations

from typing import Protocol

from gristmill._base.checks import stands_for
from gristmill._base.listing import listed
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
    """What a loader needs of a sampler.

    ``__len__`` is optional: without it the loader searches for the first index
    that raises IndexError.  ``__repr__`` should say everything that decides the
    order, because states are compared by it.

    A sampler may also have ``record_keys(first, step, count)``, which returns the
    record keys of the global indices first, first + step, ... as int64 of shape
    (count,), as `IndexSampler` does; and ``interleaved(lanes)``, which returns the
    sampler whose order suits readers that take turns, as `GroupShuffleSampler` does.
    Each stream of a loader is then computed by one worker.

    If it has ``set_epoch(epoch)``, a loader's `set_epoch` calls that on a copy of it.

    Example:
        >>> class Backwards:
        ...     def __getitem__(self, index):
        ...         if index >= 3:
        ...             raise IndexError
        ...         return RecordMetadata(index=index, record_key=2 - index)
        >>> given = {"sampler": Backwards(), "shard_options": gristmill.NoSharding()}
        >>> list(gristmill.DataLoader(data_source="abc", **given))
        ['c', 'b', 'a']
    """

    def __getitem__(self, index: int, /) -> RecordMetadata:
        """Return the metadata of a global index; IndexError after the last one."""


def reads_in_blocks(sampler: object) -> bool:
    """Whether ``sampler.record_keys`` stands for ``sampler[index]``."""
    return stands_for(type(sampler), "record_keys", "__getitem__")


def __dir__() -> list[str]:
    return listed(__all__)
