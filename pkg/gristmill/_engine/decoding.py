"""Makes batches straight from record files, where the first step decodes natively.

Records go from the file to the batch, which is the slot in a worker, without becoming
Python objects.
"""

from __future__ import annotations

import itertools
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gristmill._base.checks import stands_for
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill._engine.block_queue import BlockQueue
from gristmill._engine.program import Program
from gristmill._engine.stream_keys import StreamKeys
from gristmill.sources._record_source import reads_natively


class BlockDecoder(Protocol):
    """A transformation that can decode a batch of records at once.

    Attributes:
        decodes_blocks: Whether it can with these arguments.
    """

    decodes_blocks: bool

    def decode_block(
        self,
        data: npt.NDArray[np.uint8],
        offsets: Int64Array,
        alloc: Alloc | None,
        rules: Rules,
    ) -> Any:
        """Return what stacking the elements of each record would give.

        Args:
            data: The bytes of all records.
            offsets: Record k of n is ``data[offsets[k]:offsets[k + 1]]``.
            alloc: Makes the arrays of the batch. None leaves them to NumPy.
            rules: See `TableSource.gather`.

        Returns:
            The batch, or None where these records are for ``map``, one by one.

        Raises:
            Exception: A record cannot be decoded.
        """


class Decoding:
    """Makes the batches of one stream by a `BlockDecoder`.

    Args:
        decoder: What decodes.
        queue: Reads packed blocks.
        keys_of: Called with (position, count), returns the keys there.
        rules: See `TableSource.gather`.
    """

    def __init__(
        self, decoder: BlockDecoder, queue: BlockQueue, keys_of: Any, rules: Rules
    ) -> None:
        self._decoder = decoder
        self._queue = queue
        self._keys_of = keys_of
        self._rules = rules

    def batch(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array] | list[bytes]:
        """The batch of the records at `position`, position + 1, ... and their keys.

        The records themselves where they must be taken one by one: because of their
        form, or because one of them cannot be decoded, which is then found out.  None
        of them where one cannot be read.
        """
        if self._queue.next_count(position) not in (0, count):
            self._queue.forget()
        keys = self._keys_of(position, count)
        try:
            data, offsets = self._queue.take(position, keys)
        except Exception:
            return []
        try:
            self._queue.look_ahead(position + count, count)
            batch = self._decoder.decode_block(data, offsets, alloc, self._rules)
        except Exception:
            batch = None
        return _split(data, offsets) if batch is None else (batch, keys)

    def start(self, position: int, count: int) -> None:
        """Begin to read ahead from `position`, in batches of `count`."""
        self._queue.start(position, count)

    def forget(self) -> None:
        """Drop what was read ahead: the stream goes on from somewhere else."""
        self._queue.forget()

    def close(self) -> None:
        """Drop what was read ahead, and end the threads."""
        self._queue.close()


def open_decoding(program: Program, stream: int, look_ahead: bool) -> Decoding | None:
    """How batches are decoded natively, where a program's can be."""
    level, source = program.levels[0], program.source
    if level.batch is None or level.batch.make is not None or len(level.steps) != 1:
        return None
    decoder: Any = getattr(level.steps[0][1], "__self__", None)
    # No subclass may have changed what `decode_block` stands for.
    in_blocks = stands_for(type(decoder), "decode_block", "map")
    if not in_blocks or not decoder.decodes_blocks:
        return None
    if not (program.in_blocks and reads_natively(source)):
        return None
    keys_of = StreamKeys(program, stream).block
    queue = BlockQueue(
        source,
        options=program.read_options,
        keys_of=keys_of,
        length=program.stream_length(stream),
        look_ahead=look_ahead,
        packed=True,
    )
    return Decoding(decoder, queue, keys_of, program.rules)


def _split(data: npt.NDArray[np.uint8], offsets: Int64Array) -> list[bytes]:
    """The records of a packed block."""
    bounds = offsets.tolist()
    return [data[begin:end].tobytes() for begin, end in itertools.pairwise(bounds)]
