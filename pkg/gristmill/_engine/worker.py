"""The loop of one worker: take a unit, compute its outputs, write them, commit."""

from __future__ import annotations

import ctypes
import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.random  # Imported before the fork, so that the workers share it.
import numpy.typing as npt

from gristmill import _core, drop_in
from gristmill._base import open_files
from gristmill._base.types import Alloc
from gristmill._engine import failures, packing, worker_stacks
from gristmill._engine.record_errors import OutputAbandoned, TurnSkipped
from gristmill._engine.stage_times import REST, SEND, StageTimes
from gristmill._engine.stream import NO_KEYS, Output, Position, Runnable, Stream
from gristmill._engine.unit_parts import UnitParts
from gristmill._engine.unit_result import UnitResult
from gristmill._hot import run as hot_run
from gristmill._hot import slot_writer
from gristmill._workers import main_module
from gristmill.sources._share import share_among

ALIGNMENT = 64
# The position of a stream whose outputs depend on requests alone.
ANYWHERE: Position = (0,)


def run_main(description: str) -> None:
    """Run the main program again, see `gristmill._workers.main_module.run`."""
    drop_in.install_if_enabled()
    with packing.remembering_files():
        main_module.run(description)


def load(blob_fd: int) -> Runnable:
    """Return the program that the parent packed; called once, before the forks."""
    drop_in.install_if_enabled()
    return packing.unpack(blob_fd)


def serve(
    program: Runnable,
    arena_fd: int,
    notify_fd: int,
    started_fd: int,
    worker: int,
    generation: int,
) -> None:
    """Compute units until there are no more; see `parent.setup` for the arguments."""
    _core.keep_freed_memory()
    worker_end = _core.WorkerEnd(arena_fd, notify_fd, worker, generation)
    # Each worker may have an equal part of the requests in flight to a remote host.
    share_among(worker_end.workers)
    try:
        packing.reopen_files()
        worker_stacks.dump_at_signal(os.fstat(arena_fd).st_ino, worker)
        server = Server(program, worker_end, worker, worker_end.workers)
    except BaseException:
        worker_end.set_startup_error(traceback.format_exc())
        raise
    times = StageTimes(worker)
    while unit := worker_end.claim():
        times.calls_until_measured -= 1
        if times.calls_until_measured:
            server.compute(unit)
        else:
            with times.measuring() as measured:
                measured.outputs += server.compute(unit, is_measured=True)
            worker_end.publish_status(times.text())
        if started_fd >= 0:  # The zygote may now start more workers.
            os.close(started_fd)
            started_fd = -1
    server.close()


class Server:
    """Computes units of the streams that this worker has opened.

    The worker's main thread calls all methods.  While it computes a unit, the thread of
    `UnitParts` calls `_write_part`, and through it `_write` and `_drop_last_outputs`.
    `UnitParts.finish` stops these calls before the main thread writes the unit.
    A subclass in `gristmill._pool.unit_server` calls `stands_at`.
    """

    # True if units may be handed over in parts; False in pools.
    _IN_PARTS: ClassVar[bool] = True

    def __init__(
        self,
        program: Runnable,
        worker_end: _core.WorkerEnd,
        worker: int,
        workers: int,
    ) -> None:
        self._program = program
        self.tolerant = program.tolerant
        self._worker_end = worker_end
        self._position_capacity = worker_end.position_capacity
        self._max_unit_bytes = worker_end.max_unit_bytes
        self._worker = worker
        self._streams: dict[int, Stream] = {}
        # Per stream: the position after the last unit computed here.
        self._end_positions: dict[int, Position] = {}
        # Streams whose object is at that position, so that no seek is needed.
        self._streams_in_place: set[int] = set()
        # For units of several outputs.
        self._parts: UnitParts | None = None
        if program.many_outputs and self._IN_PARTS:
            self._parts = UnitParts(worker_end, self._write_part)
        # The method for this run's kind of units, chosen at the first unit.
        self._compute_result: Callable[[_core.Work, Alloc], UnitResult] | None = None
        # The error of `init_worker`, raised for every unit.
        self._init_error: Exception | None = None
        try:
            program.init_worker(worker, workers)
        except Exception as error:
            self._init_error = error

    def close(self) -> None:
        """Close the streams, so that the user's iterators release their resources."""
        for stream in self._streams.values():
            try:
                stream.close()
            except Exception:
                traceback.print_exc()
        self._streams.clear()

    def stands_at(self, stream: int, position: Position) -> bool:
        """Return whether the stream's last unit in this worker ended at `position`."""
        return self._end_positions.get(stream) == position

    def compute(self, unit: _core.Work, is_measured: bool = False) -> int:
        """Compute one unit and commit it; return the number of its outputs.

        Args:
            unit: The unit.
            is_measured: Whether to measure the times of stages.
        """
        stage_start = hot_run.begin() if is_measured else -1
        writer = slot_writer.SlotWriter(unit.address, unit.capacity)
        stream = unit.stream
        try:
            compute_result = self._compute_result
            if compute_result is None:
                compute_result = self._compute_result = self._method_for(unit.kind)
            result = compute_result(unit, writer.empty)
        except Exception as error:  # The stream cannot be opened or moved.
            result = UnitResult([], self._position_before(unit))
            result.failure = failures.pack_failure(error, self._worker)
            if self.tolerant:  # No record of the unit was bad.
                result.failure = pickle.dumps((result.failure, None), 5)
        if is_measured:
            hot_run.end(REST, stage_start)
        # The rest of the unit after the parts that the parent took, perhaps in
        # another slot; None if the unit was withdrawn, or there is no memory for it.
        remaining_unit: _core.Work | None = unit
        if self._parts is not None:
            remaining_unit = self._parts.finish(unit)
        if is_measured:
            stage_start = hot_run.begin()
        written = None
        if remaining_unit is not None:
            if remaining_unit is not unit:
                writer = slot_writer.SlotWriter(
                    remaining_unit.address, remaining_unit.capacity
                )
            written = self._write(writer, result)
        if is_measured:
            hot_run.end(SEND, stage_start)
        self._end_positions[stream] = result.position
        outputs = result.delivered_count
        if written is not None:
            count, nbytes = written
            outputs += count - (result.failure is not None)
            self._worker_end.commit(result.status, count, nbytes, result.position)
        return outputs

    def _method_for(
        self, kind: _core.UnitKind
    ) -> Callable[[_core.Work, Alloc], UnitResult]:
        """Return the method that computes units of a kind."""
        if kind is _core.UnitKind.RANGE:
            return self._compute_range
        sequential = kind is _core.UnitKind.SEQUENTIAL
        return self._compute_next if sequential else self._answer_request

    def _position_before(self, unit: _core.Work) -> Position:
        """Return the position at which a unit begins."""
        if unit.kind is _core.UnitKind.RANGE:
            return (unit.first,)
        return self._end_positions.get(unit.stream, ANYWHERE)

    def _compute_range(self, unit: _core.Work, alloc: Alloc | None) -> UnitResult:
        """Compute all outputs of the records [first, first + count)."""
        number, first = unit.stream, unit.first
        stream: Any = self._stream_at(number, (first,))
        if hasattr(stream, "restrict_to"):
            stream.restrict_to(unit.count)
        if unit.attempt:
            _disable_lookahead(stream)
        result = UnitResult([], (first,))
        computes_runs = getattr(stream, "computes_runs", False)
        if self._parts is not None:
            # Do not allocate outputs in the slot: parts are written there, and the
            # parent reads them.
            alloc = None
            self._parts.begin(unit, result, stream if computes_runs else None)
        end = first + unit.count
        has_more = True
        while has_more and stream.position[0] < end:
            run = stream.next_run(end - stream.position[0]) if computes_runs else []
            result.position = stream.position
            if not run:
                has_more = self._add_output(result, number, alloc)
            elif self._parts is None:
                result.outputs += run
            else:
                self._parts.add_run(run)
        result.moved = result.position[0] > end
        return result

    def _compute_next(self, unit: _core.Work, alloc: Alloc) -> UnitResult:
        """Compute the next output of a stream that this worker owns."""
        # If true, the unit has no position: it follows this process's last one.
        number, continues_stream = unit.stream, unit.continues_stream
        if not continues_stream:
            self._end_positions[number] = tuple(unit.position_before.tolist())
        position_before = self._end_positions[number]
        is_in_place = continues_stream and number in self._streams_in_place
        stream = self._stream_at(number, None if is_in_place else position_before)
        if unit.attempt:
            _disable_lookahead(stream)
        result = UnitResult([], position_before)
        self._add_output(result, number, alloc)
        return result

    def _answer_request(self, unit: _core.Work, alloc: Alloc) -> UnitResult:
        """Compute the answer to the request that the unit has in `position_before`."""
        stream: Any = self._stream_at(unit.stream, None)
        element = stream.answer(unit.position_before, alloc)
        result = UnitResult([(element, NO_KEYS, ANYWHERE)], ANYWHERE)
        result.leave = stream.leave_slot
        return result

    def _add_output(self, result: UnitResult, number: int, alloc: Alloc | None) -> bool:
        """Add the next output of a stream; return whether there is one."""
        stream = self._streams[number]
        failure_or_skip: Exception | TurnSkipped | None = None
        capacity = self._position_capacity
        try:
            element = stream.next(alloc)
            if (length := len(stream.position)) > capacity:
                raise ValueError(
                    f"The position of stream {number} must have at most {8 * capacity}"
                    f" bytes, got {8 * length} bytes after this output. Keep less in"
                    " the state of the pipeline's iterators, or run it without"
                    " workers."
                )
            if self.tolerant:
                element = element, self._pack_errors(stream)
            result.outputs.append((element, stream.keys, stream.position))
        except StopIteration:
            if not stream.record_errors.records:
                result.ended = True
                return False
            failure_or_skip = TurnSkipped.ONLY_BAD_RECORDS
        except OutputAbandoned:
            failure_or_skip = TurnSkipped.TOO_MANY
        except Exception as error:
            failure_or_skip = error
        if failure_or_skip is not None:
            result.failure = self._pack(failure_or_skip, stream)
        if len(stream.position) <= capacity:
            result.position = stream.position
        return failure_or_skip is None

    def _stream_at(self, number: int, position: Position | None) -> Stream:
        """Return a stream, after moving it to a position if one is given."""
        if self._init_error is not None:
            raise self._init_error
        self._streams_in_place.discard(number)
        stream = self._streams.get(number)
        if stream is None:
            record_address = self._worker_end.current_record_address
            stream = self._program.open_stream(number, record_address)
            self._streams[number] = stream
        if position is not None:
            stream.seek(position)
        self._streams_in_place.add(number)
        return stream

    def _pack(self, failure_or_skip: Exception | TurnSkipped, stream: Stream) -> bytes:
        """Pack an exception, or the reason why there is no output, for the parent."""
        if isinstance(failure_or_skip, TurnSkipped):
            return pickle.dumps((failure_or_skip, self._pack_errors(stream)), 5)
        failure = failures.pack_failure(failure_or_skip, self._worker)
        if not self.tolerant:
            return failure
        return pickle.dumps((failure, self._pack_errors(stream)), 5)

    def _pack_errors(self, stream: Stream) -> bytes | None:
        """Pack the bad records before an output; return None if there are none."""
        summary = stream.record_errors.summary
        if summary is None:
            return None
        records, error = summary
        return pickle.dumps((records, failures.pack_failure(error, self._worker)), 5)

    def _write_part(
        self, unit: _core.Work, outputs: list[Output]
    ) -> tuple[int, int] | None:
        """Write the first outputs of a unit; see the `write` of `UnitParts`."""
        writer = slot_writer.SlotWriter(unit.address, unit.capacity)
        _, _, position = outputs[-1]
        part = UnitResult(outputs, position)
        part.is_part = True
        return self._write(writer, part)

    def _write(
        self,
        writer: slot_writer.SlotWriter,
        result: UnitResult,
        memory: npt.NDArray[np.uint8] | None = None,
    ) -> tuple[int, int] | None:
        """Write a result to the slot; return the numbers of outputs and of bytes used.

        A failure counts as an output.  If the slot is too small, encode into private
        `memory`, because some outputs may lie in the slot.  Then request a larger slot
        and copy.  Returns None if the unit was withdrawn, or there is no memory for it.
        """
        failure = None if result.failure is None else (result.failure, result.position)
        try:
            used = slot_writer.encode(writer, result.outputs, failure)
        except slot_writer.SlotTooSmallError as error:
            if len(result.outputs) > 1 and error.bytes > self._max_unit_bytes:
                self._drop_last_outputs(result, error.bytes)
                return self._write(writer, result, memory)
            memory = np.empty(error.bytes + ALIGNMENT, np.uint8)
            padding = -memory.ctypes.data % ALIGNMENT
            larger = slot_writer.SlotWriter(memory.ctypes.data + padding, error.bytes)
            return self._write(larger, result, memory)
        except Exception as error:
            if result.is_part:
                raise
            # Keep the writer: outputs before the bad one may already be in the slot.
            self._cut_before_bad_output(result, error)
            return self._write(writer, result, memory)
        count = len(result.outputs) + (failure is not None)
        # No output may refer to the slot when it is handed over.
        result.outputs = []
        if result.leave is not None:
            result.leave()
        if memory is not None:
            address = self._worker_end.request_larger_slot(used)
            if address is None:
                return None
            ctypes.memmove(address, writer.address, used)
        return count, used

    def _drop_last_outputs(self, result: UnitResult, nbytes: int) -> None:
        """Keep about `max_unit_bytes` of `nbytes`; the next unit has the rest."""
        count = max(len(result.outputs) * self._max_unit_bytes // nbytes, 1)
        result.outputs = result.outputs[:count]
        _, _, result.position = result.outputs[-1]
        result.failure, result.ended, result.moved = None, False, True

    def _cut_before_bad_output(self, result: UnitResult, error: Exception) -> None:
        """Cut a result before its first output that cannot be sent."""
        error.add_note("while sending an output from a worker to the loader's process")
        bad = next(
            i for i, output in enumerate(result.outputs) if not _can_send(output)
        )
        element, _, result.position = result.outputs[bad]
        result.outputs = result.outputs[:bad]
        result.failure = failures.pack_failure(error, self._worker)
        if self.tolerant:
            _, errors = element
            result.failure = pickle.dumps((result.failure, errors), 5)


def _disable_lookahead(stream: Any) -> None:
    """Make a stream compute only its next output, because a worker has died."""
    if hasattr(stream, "disable_lookahead"):
        # A record of a later output may have killed the worker.
        stream.disable_lookahead()


def _can_send(output: Output) -> bool:
    try:
        open_files.dumps(output[0])
    except Exception:
        return False
    return True
