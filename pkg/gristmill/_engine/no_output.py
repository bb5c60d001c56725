"""Warns about loaders without outputs, because an empty loop looks like success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gristmill import transforms
from gristmill._base.object_repr import value_text
from gristmill._base.user_lines import warn_user
from gristmill._engine.program import Program, holds_back


def warn_of_no_output(program: Program, operations: Sequence[Any]) -> None:
    """Warn if a loader can never have outputs.

    Args:
        program: The compiled loader.
        operations: The operations from which it was compiled.
    """
    count = max_records = program.stream_length(0)  # No stream has more.
    drop_reason = None
    for op in operations:
        spreads = isinstance(op, (transforms.FlatMap, transforms.BucketBatch))
        if holds_back(op) or (count and spreads):
            return  # The number of outputs is unknown.
        if isinstance(op, transforms.Batch):
            text, size = value_text(op), int(op.batch_size)
            count, too_few = count_batches(count, text, size, op.drop_remainder)
            drop_reason = too_few or drop_reason
    if count:
        return
    streams, shard = program.streams, program.shard
    if drop_reason is None:
        reason = "There are no records for it."
        if shard.shard_count > 1:
            reason = f"There are no records for {shard}."
    elif streams > 1:
        reason = (
            f"Each of its {streams} streams has at most {max_records} of"
            f" {program.length} records. {drop_reason} Pass streams=1, or fewer"
            " workers, or a smaller batch size, or drop_remainder=False."
        )
    else:
        reason = f"{drop_reason} Pass a smaller batch size, or drop_remainder=False."
    warn_user(f"This loader gives no output. {reason}")


def count_batches(
    count: int, batch_text: str, size: int, drop_remainder: bool
) -> tuple[int, str | None]:
    """Return the number of batches of `count` elements, and the reason if it is 0.

    The reason is None if there are batches, or no elements.

    Args:
        count: The number of elements.
        batch_text: The text of the batch operation, which begins the reason.
        size: The batch size.
        drop_remainder: Whether a last batch of fewer elements is dropped.
    """
    full_batches, remaining = divmod(count, size)
    if count and not full_batches and drop_remainder:
        reason = f"{batch_text} gets at most {count} elements, and makes a batch of"
        return 0, f"{reason} {size}."
    return full_batches + (remaining > 0 and not drop_remainder), None
