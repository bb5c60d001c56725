"""Warns of loaders that give nothing, since a loop over nothing looks like success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gristmill import transforms
from gristmill._base.describing import value_text
from gristmill._base.user_lines import warn_user
from gristmill._engine.program import Program, holds_back


def warn_of_no_output(program: Program, operations: Sequence[Any]) -> None:
    """Warn if a loader gives nothing, whatever its functions do.

    Args:
        program: What the loader was compiled to.
        operations: What it was compiled from.
    """
    count = most = program.stream_length(0)  # No stream has more.
    dropping = None
    for op in operations:
        if holds_back(op) or (count and isinstance(op, transforms.FlatMap)):
            return  # It may give any number.
        if isinstance(op, transforms.Batch):
            full, rest = divmod(count, int(op.batch_size))
            if count and not full and op.drop_remainder:
                dropping = too_few(count, value_text(op), op.batch_size)
            count = full + (rest > 0 and not op.drop_remainder)
    if count:
        return
    streams, shard = program.streams, program.shard
    if dropping is None:
        reason = "There are no records for it."
        if shard.shard_count > 1:
            reason = f"There are no records for {shard}."
    elif streams > 1:
        reason = (
            f"Each of its {streams} streams has at most {most} of {program.length}"
            f" records. {dropping} Pass streams=1, or fewer workers, or a smaller batch"
            " size, or drop_remainder=False."
        )
    else:
        reason = f"{dropping} Pass a smaller batch size, or drop_remainder=False."
    warn_user(f"This loader gives no output. {reason}")


def too_few(count: int, who: str, size: int) -> str:
    """Return a sentence on a batch that is never full."""
    return f"{who} gets at most {count} elements, and makes a batch of {size}."
