"""Computes a chain of one-to-one steps, filters and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill._base.threads import threads_to_compute
from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.block_queue import BlockReading, open_reading
from gristmill._engine.block_steps import (
    BlockResult,
    ComputedBlock,
    block_steps,
    can_reuse,
    records_after,
    run_steps,
    split_block,
)
from gristmill._engine.native_batches import batches_of, make_batch_of
from gristmill._engine.program import Program, as_number
from gristmill._engine.reading import ReadResult, read_each, read_together
from gristmill._engine.record_errors import RecordErrors
from gristmill._engine.stage_times import READ
from gristmill._engine.stream import NO_KEYS, Output, Position, record_word, to_outputs
from gristmill._engine.stream_keys import RecordKeys, StreamKeys, first_records, name_of
from gristmill._hot import run as hot_run
from gristmill._hot import steps as step_kinds
from gristmill._hot.error_location import ErrorLocation
from gristmill.sources import TableSource


class NativeStream:
    """A chain of one-to-one steps, filters and batches.  See `Stream`.

    Its position is the number of records consumed; an output consumes exactly those
    that it needs.  Elements that a block map has made in advance are kept for the next
    outputs; another process makes them again.  For threads, see `Stream`.

    Args:
        record_address: See `Runnable.open_stream`.
        look_ahead: Whether to read records ahead of the current output.
    """

    def __init__(
        self, program: Program, stream: int, record_address: int, look_ahead: bool
    ) -> None:
        self.position: Position = (0,)
        self.keys = NO_KEYS
        limit = program.errors_per_output
        self.record_errors = RecordErrors(stream, program.on_error, limit)
        self._program = program
        self._record_address = record_address
        self._tolerant = program.tolerant
        self._consumed = 0
        self._stages = program.batch_stages
        self._steps = program.batch_stages[0].steps
        self._threads = threads_to_compute(int(program.read_options.num_threads))
        self._keys = StreamKeys(program, stream)
        self._length = self._keys.length
        self._draws = self._keys.draws
        self._batches = batches_of(program, self._keys, look_ahead)
        # Its own StreamKeys: reading ahead would replace the cached block of `_keys`.
        ahead = look_ahead and self._batches is None
        self._reading = open_reading(program, StreamKeys(program, stream), ahead)
        self._is_table = isinstance(program.source, TableSource)
        self._block_runner = block_steps(self._steps, self._draws, record_address)
        # True if `next_run` may be called: each record gives exactly one output.
        self.computes_runs = (
            len(self._stages) == 1
            and self._stages[0].batch is None
            and not (self._tolerant or program.owned)
        )
        # True if `run_block` reads until it has enough outputs: filters drop records.
        filters = any(step[0] == step_kinds.FILTER for step in self._steps)
        self._reads_until_full = filters and program.in_blocks
        reads_before_steps = self._tolerant or self._block_runner is not None
        self._reads_together = reads_before_steps and hot_run.reads_together(
            type(program.source)
        )
        # After a bad record: position, keys and read elements of the rest of its block.
        self._failed_tail: tuple[int, RecordKeys, ReadResult | None] | None = None
        # Computed but not needed yet: position and rest of the block.
        self._undelivered: tuple[int, ComputedBlock] | None = None
        # Set during `next_run`, read by another thread: first record, keys, elements.
        self._current_run: tuple[int, Int64Array, list[Any]] | None = None
        # True if each step gets one element at a time until the next output.
        self._lookahead_disabled = False
        self._current_record = record_word(record_address)
        self._key_parts: list[Int64Array] = []  # Keys of the output being computed.

    def seek(self, position: Position) -> None:
        self._length = self._keys.length  # A sampler or a source may have ended it.
        if position[0] != self._consumed:
            self._reading.forget()
            if self._batches is not None:
                self._batches.forget()
        self._consumed = position[0]
        self.position = position

    def next(self, alloc: Alloc | None = None) -> Any:
        start = self._consumed
        self._key_parts.clear()
        if self._tolerant:
            self.record_errors.begin()
        try:
            output = self._output(alloc)
        except Exception:  # The failed record, or the end, counts as consumed.
            self.position = (self._consumed,)
            raise
        except BaseException:  # Interrupted: compute the same output again.
            self._consumed = start
            raise
        self.position = (self._consumed,)
        self._lookahead_disabled = False
        parts = self._key_parts
        self.keys = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return output

    def next_run(self, want: int) -> list[Output]:
        """Return up to `want` outputs; fewer if the one after them fails.

        Then `next` raises its error; if the first one fails, returns [].
        """
        want = min(want, self._length - self._consumed)
        if want <= 0 or self._lookahead_disabled:
            return []
        first = self._consumed
        try:
            block = self._next_block(want, [])  # The list is for `outputs_so_far`.
        except Exception:
            return []
        finally:
            self._current_run = None
        _, _, (elements, *_) = block
        # The records after the last output go to `rest`, with an error among them.
        ((keys, _, _), _, _), rest = split_block(block, len(elements))
        outputs = to_outputs(first, keys, elements)
        self._consumed += len(outputs)
        if rest is not None:
            self._undelivered = self._consumed, rest
        self.position = (self._consumed,)
        return outputs

    def outputs_so_far(self) -> list[Output]:
        """Return the outputs that a `next_run` in another thread has finished."""
        run = self._current_run
        return [] if run is None else to_outputs(*run)

    def disable_lookahead(self) -> None:
        """Run the steps over one element at a time until there is another output."""
        self._lookahead_disabled = True
        self._undelivered = None

    def start_prefetch(self) -> None:
        spec: Any = self._stages[0].batch
        if self._batches is not None:
            self._batches.start(self._consumed, spec.batch_size)
        elif not self._is_table:
            self._reading.start(self._consumed)

    def close(self) -> None:
        self._failed_tail = self._undelivered = None
        self._reading.close()
        if self._batches is not None:
            self._batches.close()

    def _output(self, alloc: Alloc | None) -> Any:
        last_stage = len(self._stages) - 1
        if self._stages[last_stage].batch is not None:
            return self._batch(last_stage, alloc)
        elements = self._elements(last_stage, 1)
        if not elements:
            raise StopIteration
        return elements[0]

    def _batch(self, stage: int, alloc: Alloc | None) -> Any:
        spec: Any = self._stages[stage].batch
        if stage == 0 and self._batches is not None:
            # Each record gives one element here.
            count = min(spec.batch_size, self._length - self._consumed)
            if count < spec.batch_size and (spec.drop_remainder or count <= 0):
                self._consumed = self._length
                raise StopIteration
            stage_start = hot_run.begin()
            # The batch and its keys, its undecoded records, or None to read these.
            result = self._batches.batch(self._consumed, count, alloc)
            hot_run.end(READ, stage_start)
            if isinstance(result, tuple):
                batch, keys = result
                self._consumed += count
                self._key_parts.append(keys)
                return batch
            if result is not None:
                assert isinstance(self._reading, BlockReading)
                self._reading.offer(self._consumed, result)  # `_elements` reads it.
        elements = self._elements(stage, spec.batch_size)
        if len(elements) < spec.batch_size and (spec.drop_remainder or not elements):
            raise StopIteration
        return make_batch_of(spec, elements, self._program.rules, alloc, self._threads)

    def _elements(self, stage: int, want: int) -> list[Any]:
        """Return up to `want` elements that have passed the steps of `stage`."""
        if stage == 0:
            return self._first_stage_elements(want)
        steps = self._stages[stage].steps
        elements: list[Any] = []
        while len(elements) < want:
            try:
                batch = self._batch(stage - 1, None)
            except StopIteration:
                break
            if not steps:
                elements.append(batch)
                continue
            # The last part is empty if no record of its block has passed the filters.
            last_key = next(part[-1:] for part in self._key_parts[::-1] if len(part))
            # Steps after a batch use neither an index nor a generator.
            index, address = last_key, self._record_address
            elements += run_steps(steps, None, address, last_key, index, [batch])
        return elements

    def _first_stage_elements(self, want: int) -> list[Any]:
        """Return up to `want` elements of records that have passed the first steps.

        Advances `_consumed`, and appends the keys of the elements to `_key_parts`.
        """
        elements: list[Any] = []
        while len(elements) < want and self._consumed < self._length:
            try:
                block = self._next_block(want - len(elements))
            except StopIteration:  # The user's sampler ends here.
                self._length = self._consumed
                break
            except Exception:
                self._consumed += 1
                raise
            records, read, (results, places, consumed, error) = block
            self._consumed += consumed
            elements = elements + results if elements else results
            keys, _, _ = records
            if error is None:
                self._key_parts.append(keys if places is None else keys[places])
                continue
            passed = slice(len(results)) if places is None else places
            self._key_parts.append(keys[passed])
            if isinstance(error, StopIteration):
                # The source ends before this record, until the next seek.
                self._consumed -= 1
                self._length = self._consumed
                break
            elements += self._replace_record(error, records, consumed - 1)
            runner = self._block_runner
            if read is not None and can_reuse(read.elements[consumed:], runner):
                unused = ReadResult(read.elements[consumed:], read.failure)
                after = records_after(records, consumed)
                self._failed_tail = self._consumed, after, unused
            if not elements and self.record_errors.should_pass_turn:
                break
        if elements:
            self.record_errors.is_first_element = False
        return elements

    def _next_block(self, want: int, out: list[Any] | None = None) -> ComputedBlock:
        """Return the next records, and up to `want` results of the steps for them.

        Does not change `_consumed`.  Appends each element to `out` when it is computed,
        except for elements that a block runner computes together, or that were kept.
        """
        first, tail, undelivered = self._consumed, self._failed_tail, self._undelivered
        self._failed_tail = self._undelivered = None
        if undelivered is not None and undelivered[0] == first:
            block = undelivered[1]
        else:
            read: ReadResult | None
            if tail is not None and tail[0] == first:
                _, records, read = tail
            else:
                count = want
                if self._block_runner is not None and not self._lookahead_disabled:
                    count = self._block_runner.round_up(want)
                count = min(count, self._length - first)
                records = self._keys.records(first, count)
                stage_start = hot_run.begin()
                read = self._read(records)
                hot_run.end(READ, stage_start)
                if read is not None and read.failure is None:
                    records = first_records(records, len(read.elements))
            if read is None and self._reads_until_full:
                records = self._keys.cached_records(first)
                result = self._run(records, None, out, want)
                _, _, consumed, _ = result
                block = first_records(records, consumed), None, result
            else:
                block = records, read, self._run(records, read, out)
        if self._block_runner is None:
            return block
        block, rest = split_block(block, want)
        if rest is not None:
            _, _, (_, _, consumed, _) = block
            self._undelivered = first + consumed, rest
        return block

    def _read(self, records: RecordKeys) -> ReadResult | None:
        """Read a block, or return None if `run_block` should read the records."""
        keys, _, names = records
        read = None
        if not self._is_table:
            read = self._reading.read(self._consumed, keys if names is None else names)
        if read is None and names is not None:
            read = read_each(self._program.source, names)
        if read is None and (self._reads_together or self._block_runner is not None):
            # Read here, so that the records after a bad one are not read again.
            self._current_record.value = int(keys[0])
            read_all = read_together if self._reads_together else read_each
            read = read_all(self._program.source, keys.tolist())
        return read

    def _run(
        self,
        records: RecordKeys,
        read: ReadResult | None,
        out: list[Any] | None,
        max_results: int = -1,
    ) -> BlockResult:
        """Run the steps over the elements of `records` in `read`.

        If `read` is None, read them one by one, and stop after `max_results` elements.
        See `_next_block` for `out`.
        """
        keys, indices, _ = records
        if out is not None:
            self._current_run = self._consumed, keys, out
        if read is None:
            source = self._program.source
            return hot_run.run_block(
                source, keys, indices, self._steps, self._draws, self._record_address,
                None, out, max_results,
            )  # fmt: skip
        elements, failure = read
        count = len(elements)
        keys, own_indices = keys[:count], indices[:count]
        if self._block_runner is None or self._lookahead_disabled:
            results, places, consumed, error = hot_run.run_block(
                None, keys, own_indices, self._steps, self._draws, self._record_address,
                elements, out,
            )  # fmt: skip
        else:
            results, places, consumed, error = self._block_runner.run(
                elements, keys, own_indices, lambda: self._rewind(records, elements)
            )
        if failure is None or error is not None:
            return results, places, consumed, error
        name, index = name_of(records, count), int(indices[count])
        failure.add_note(ErrorLocation(None, name, index))
        return results, places, count + 1, failure

    def _rewind(self, records: RecordKeys, elements: list[Any]) -> list[Any]:
        """Reset the records' generators; return the elements before the steps."""
        keys, indices, names = records
        for offset, index in enumerate(indices.tolist()):
            self._keys.renew_generator(self._consumed + offset, index)
        if can_reuse(elements, self._block_runner):
            return elements
        source_keys = keys.tolist() if names is None else names
        # If a record cannot be read again, keep its element from the first read.
        reread, _ = read_each(self._program.source, source_keys[: len(elements)])
        return reread + elements[len(reread) :]

    def _replace_record(
        self, error: Exception, records: RecordKeys, number: int
    ) -> Sequence[Any]:
        """Return the elements that replace the last record consumed.

        Args:
            error: The record's exception.
            records: A block with the record.
            number: The index of the record in the block.

        Raises:
            Exception: `error`, if on_error is "raise", or a record did not cause it.
        """
        position, index = self._consumed - 1, records[1][number : number + 1]

        def recompute(name: Any) -> Sequence[Any]:
            """Run the steps over another record, with this index and generator."""
            self._keys.renew_generator(position, int(index[0]))
            elements, failure = read_each(self._program.source, [name])
            if failure is not None:
                raise failure
            keys = np.array([as_number(name)], np.int64)
            steps, address = self._steps, self._record_address
            results = run_steps(steps, self._draws, address, keys, index, elements)
            self._key_parts.append(keys[: len(results)])
            return results

        name, candidates = name_of(records, number), self._keys.candidates(position)
        return self.record_errors.replace_record(error, name, candidates, recompute)
