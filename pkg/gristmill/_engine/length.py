"""How many outputs a loader gives, where that follows from arithmetic alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gristmill import transforms
from gristmill._engine.program import Program

_ONE_TO_ONE = (
    transforms.Map,
    transforms.RandomMap,
    transforms.TfRandomMap,
    transforms.MapWithIndex,
)


def outputs(program: Program, operations: Sequence[Any]) -> int:
    """The outputs of all streams together.

    Args:
        program: The loader's.
        operations: What it was compiled from.

    Raises:
        TypeError: The number is not known before iterating, or there is no end.
    """
    if reason := _unknown(program, operations):
        raise TypeError(f"object of type 'DataLoader' has no len(): {reason}")
    total = 0
    for stream in range(program.streams):
        count = program.stream_length(stream)
        for op in operations:
            if isinstance(op, transforms.Batch):
                full, rest = divmod(count, int(op.batch_size))
                count = full + (rest > 0 and not op.drop_remainder)
        total += count
    return total


def _unknown(program: Program, operations: Sequence[Any]) -> str | None:
    """Why the number of outputs is not known; None where it is."""
    # A sampler without an end has the largest length there is.
    if program.keys.length >= sys.maxsize // program.keys.shard.shard_count:
        return "its sampler has no end. Pass num_epochs= for one."
    if program.on_error == "skip":
        return "on_error='skip' may leave records out."
    for op in operations:
        if not isinstance(op, (*_ONE_TO_ONE, transforms.Batch)):
            return f"{type(op).__name__} may give more or fewer elements than it gets."
    return None
