"""The programs of ranks that share a pool.

They differ in their parts of the data, their epochs and the like, but have the same
data source or chain.  Therefore the pool loads one whole program, the base.  For each
other program a rank sends only the rest, and the pool adds the shared field.
"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, NamedTuple

from gristmill._base import open_files
from gristmill._engine.stream import Runnable

# The names of the fields with the data, in the kinds of programs.
_SHARED_FIELDS = ("source", "dataset")


class Part(NamedTuple):
    """A part of a chain in an epoch.

    Attributes:
        number: The number of the part; see `slice_chain`.
        parts: The number of parts.
        sequential: Whether parts are contiguous pieces of sources.
        epoch: The epoch, see `IterDataset.at_epoch`.
    """

    number: int
    parts: int
    sequential: bool
    epoch: int = 0


WHOLE = Part(0, 1, False)


def shared_field(program: Any) -> str:
    """Return the name of the field that all programs of a pool share."""
    return next(name for name in _SHARED_FIELDS if hasattr(program, name))


def pack_rest(program: Any, part: Part) -> bytes:
    """Pickle a program without its shared field.

    Args:
        program: The program of a rank.
        part: The part of the base's chain that is its chain; ignored if the shared
            field is a source.

    Raises:
        Exception: The program cannot be pickled.
    """
    rest = dataclasses.replace(program, **{shared_field(program): None})
    try:
        return open_files.dumps((rest, part))
    except Exception as error:
        error.add_note(program.unpicklable_note())
        raise


def complete(base: Runnable, packed: bytes) -> Runnable:
    """Return the program whose rest was packed."""
    rest, part = pickle.loads(packed)
    name = shared_field(rest)
    shared = getattr(base, name)
    if name == "dataset" and part != WHOLE:
        from gristmill._dataset.nodes.slicing import slice_chain

        number, parts, sequential, epoch = part
        shared = slice_chain(shared, number, parts, sequential)
        shared = shared._in_epoch(epoch) if epoch else shared
    completed: Runnable = dataclasses.replace(rest, **{name: shared})
    return completed
