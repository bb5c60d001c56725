"""Computes the streams of a program in this process, one after another."""

from __future__ import annotations

from typing import Any

from gristmill._base.types import Int64Array
from gristmill._engine.buffered_stream import BufferedStream
from gristmill._engine.next_output import NextOutput
from gristmill._engine.record_errors import ErrorCounter, OutputAbandoned, TurnSkipped
from gristmill._engine.stage_times import REST, StageTimes, mean_times
from gristmill._engine.state import RunPosition
from gristmill._engine.stream import NO_KEYS, Runnable, Stream
from gristmill._engine.worker_stats import LocalStats
from gristmill._hot import run as hot_run
from gristmill._hot.error_location import as_failure


class LocalRun:
    """Computes each output on request, from all streams in turn.

    `position` is the one after the last output.  If `ahead` is true, a thread computes
    the next output while the caller uses the last one.  The thread owns the stream of
    that output until `NextOutput.take` has returned.  Otherwise not thread-safe: one
    thread, the consumer's, calls the methods.

    The run owns the `position` that it gets, and changes that object.
    """

    workers = 0

    def __init__(
        self,
        program: Runnable,
        position: RunPosition,
        counter: ErrorCounter | None,
        ahead: bool = False,
    ) -> None:
        self.position = position
        # The keys of the records of the last output, shape (k,).
        self.keys: Int64Array = NO_KEYS
        self._program = program
        self._error_counter = counter
        # The output due, in a tuple, if it was held back because of its bad records.
        self._held_output: tuple[Any] | None = None
        self._streams: dict[int, Stream] = {}
        self._times = StageTimes()
        # Computes the next output in advance; None if that is disabled.
        self._next_output = NextOutput() if ahead else None

    def next(self) -> Any:
        """Return the next output.

        Raises:
            StopIteration: All streams have ended.
            Exception: The user's code raised it; the output counts as delivered.
            TooManyErrors: More records failed than the limit; the output is due again.
        """
        if self._next_output is not None:
            self._reopen_in_fork()
        next_output, position, times = self._next_output, self.position, self._times
        while True:
            number = position.next_stream
            if position.ended[number]:
                if all(position.ended):
                    raise StopIteration
                position.pass_turn()
                continue
            stream = self._streams.get(number) or self._open(number)
            try:
                times.calls_until_measured -= 1
                # Plain calls skip `_take_output`, which would take longer.
                is_plain = (
                    times.calls_until_measured
                    and next_output is None
                    and self._held_output is None
                )
                output = stream.next() if is_plain else self._take_output(stream)
            except StopIteration:
                if not stream.record_errors.records:
                    self._mark_ended(number, stream)
                    continue
                output = TurnSkipped.ONLY_BAD_RECORDS
            except OutputAbandoned:
                output = TurnSkipped.TOO_MANY
            except Exception as error:
                # The failed output counts, so that later outputs keep their places.
                position.positions[number] = stream.position
                position.pass_turn()
                self._account(stream, error)
                raise
            replacement = None
            if stream.record_errors.records:
                replacement = output if isinstance(output, TurnSkipped) else None
                # If `_account` raises TooManyErrors, the next call returns this output.
                self._held_output = (output,)
                self._account(stream, replacement)
                self._held_output = None
            position.positions[number] = stream.position
            # The body of `pass_turn`, without the cost of a call.
            position.next_stream = (number + 1) % len(position.positions)
            if replacement is None:
                self.keys = stream.keys
                if next_output is not None:
                    self._begin_next()
                return output

    def usage(self) -> LocalStats:
        """Return the measured times of the stages."""
        return LocalStats((), mean_times(self._times.by_clock), self._program.stages)

    def start_prefetch(self) -> None:
        """Begin to read ahead in every stream."""
        for number in range(self.position.streams):
            (self._streams.get(number) or self._open(number)).start_prefetch()
        self._begin_next()

    def go_to(self, position: RunPosition) -> None:
        """Continue from another position with the same number of streams."""
        self._reopen_in_fork()
        if self._next_output is not None and self._next_output.is_pending:
            # The thread may use its streams for any length of time.
            self._close_streams()
        self.keys = NO_KEYS
        self._held_output = None
        self.position = position
        for number, stream in self._streams.items():
            stream.seek(position.positions[number])

    def close(self) -> None:
        self._close_streams()
        self._held_output = None

    def _close_streams(self) -> None:
        """Close the streams, or let the thread do that when its call has returned."""
        streams, self._streams = self._streams, {}

        def close() -> None:
            for stream in streams.values():
                stream.close()

        next_output = self._next_output
        if next_output is None:
            close()
        else:
            self._next_output = NextOutput()
            next_output.close(close)

    def _open(self, number: int) -> Stream:
        try:
            stream = self._program.open_stream(number)
            if getattr(stream, "computes_runs", False):
                stream = BufferedStream(stream)
            stream.seek(self.position.positions[number])
        except StopIteration as error:
            raise as_failure(error, f"opening stream {number}") from error
        self._streams[number] = stream
        return stream

    def _mark_ended(self, number: int, stream: Stream) -> None:
        """Record the end of the stream whose turn it was."""
        position = self.position
        position.ended[number] = True
        if _reports_end(position):
            position.positions[number] = stream.position
        position.pass_turn()

    def _take_output(self, stream: Stream) -> Any:
        """Return the next output of a stream; measure its stages if that is due."""
        if self._held_output is not None:
            self._times.calls_until_measured += 1  # Nothing is computed.
            return self._held_output[0]
        if self._times.calls_until_measured:
            return self._compute_or_take(stream)
        if not isinstance(stream, BufferedStream):
            return self._times.measure(REST, self._compute_or_take, stream)
        if stream.ready:
            self._times.calls_until_measured += 1  # Nothing is computed.
            return stream.next()
        with self._times.measuring() as measured:
            stage_start = hot_run.begin()
            output = stream.next()
            if hot_run.end(REST, stage_start):
                measured.outputs += 1 + stream.ready
        return output

    def _compute_or_take(self, stream: Stream) -> Any:
        """Return the next output of a stream; wait for it if a thread computes it."""
        next_output = self._next_output
        if next_output is not None and next_output.is_pending:
            return next_output.take()
        return stream.next()

    def _begin_next(self) -> None:
        """Begin to compute the next output in advance, unless that has begun."""
        next_output, position = self._next_output, self.position
        if next_output is None or next_output.is_pending or all(position.ended):
            return
        number = position.next_stream
        while position.ended[number]:
            number = (number + 1) % position.streams
        next_output.begin((self._streams.get(number) or self._open(number)).next)

    def _reopen_in_fork(self) -> None:
        """If this process is a fork, open all streams again at the current position."""
        if self._next_output is not None and self._next_output.is_in_fork:
            self._next_output = NextOutput()
            self._streams = {}

    def _account(
        self, stream: Stream, replacement: Exception | TurnSkipped | None
    ) -> None:
        """Count the bad records before an output, or before its replacement."""
        summary = stream.record_errors.summary
        if self._error_counter is not None and summary is not None:
            self._error_counter.account(summary, replacement)
            self.position.errors = self._error_counter.count


def _reports_end(position: RunPosition) -> bool:
    """Return whether an ended stream's state is the position at which reading ended.

    That is so for Grain's single stream without workers.  With several streams, an
    ended stream keeps the position after its last output.
    """
    return position.worker_count == 0 and position.streams == 1
