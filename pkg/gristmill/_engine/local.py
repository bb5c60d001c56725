"""Computes the streams of a program in this process, one after another."""

from __future__ import annotations

from typing import Any

from gristmill._base.types import Int64Array
from gristmill._engine.buffered_stream import BufferedStream
from gristmill._engine.next_output import NextOutput
from gristmill._engine.record_errors import GiveUp, NoOutput, Tally
from gristmill._engine.stage_times import REST, StageTimes, each
from gristmill._engine.state import RunPosition
from gristmill._engine.stream import NO_KEYS, Runnable, Stream
from gristmill._engine.usage import NearUsage
from gristmill._hot import run as hot_run
from gristmill._hot.place import as_failure


class LocalRun:
    """Computes each output when it is asked for, and delivers all streams in turn.

    `position` is kept up to date.  With `ahead` the next output is computed by a thread
    while the caller uses the last one: its stream is that thread's until then.
    """

    workers = 0

    def __init__(
        self,
        program: Runnable,
        position: RunPosition,
        tally: Tally | None,
        ahead: bool = False,
    ) -> None:
        self.position = position
        # Of the records that the last output was made of, shape (k,).
        self.keys: Int64Array = NO_KEYS
        self._program = program
        self._tally = tally
        # The output due, in a tuple, where it was held back for its bad records.
        self._held: tuple[Any] | None = None
        self._streams: dict[int, Stream] = {}
        self._times = StageTimes()
        # Of the stream that is due; None where nothing is computed ahead.
        self._next_output = NextOutput() if ahead else None

    def next(self) -> Any:
        """The next output.

        Raises:
            StopIteration: All streams have ended.
            Exception: What the user's code raised; the output counts as given.
            TooManyErrors: More records failed than may; the output is due again.
        """
        if self._next_output is not None:
            self._leave_fork()
        ahead, position, times = self._next_output, self.position, self._times
        while True:
            number = position.next_stream
            if position.ended[number]:
                if all(position.ended):
                    raise StopIteration
                position.pass_turn()
                continue
            stream = self._streams.get(number) or self._open(number)
            try:
                times.left -= 1
                plain = times.left and ahead is None and self._held is None
                output = stream.next() if plain else self._taken(stream)
            except StopIteration:
                if not stream.record_errors.records:
                    self._end(number, stream)
                    continue
                output = NoOutput.NOTHING
            except GiveUp:
                output = NoOutput.GIVEN_UP
            except Exception as error:
                # The failed output has had its turn, so that the others keep theirs.
                position.positions[number] = stream.position
                position.pass_turn()
                self._account(stream, error)
                raise
            instead = None
            if stream.record_errors.records:
                instead = output if isinstance(output, NoOutput) else None
                self._held = (output,)
                self._account(stream, instead)
                self._held = None
            position.positions[number] = stream.position
            # As `pass_turn`, without a call.
            position.next_stream = (number + 1) % len(position.positions)
            if instead is None:
                self.keys = stream.keys
                if ahead is not None:
                    self._begin_next()
                return output

    def usage(self) -> NearUsage:
        """What the stages were measured to take."""
        return NearUsage((), each(self._times.by_clock), self._program.stages)

    def start_prefetch(self) -> None:
        """Begin to read ahead in every stream."""
        for number in range(self.position.streams):
            (self._streams.get(number) or self._open(number)).start_prefetch()
        self._begin_next()

    def restart(self, position: RunPosition) -> None:
        """Go on from another position with as many streams."""
        self._leave_fork()
        if self._next_output is not None and self._next_output.begun:
            # It may go on for any time with the streams that it has.
            self._close_streams()
        self.keys = NO_KEYS
        self._held = None
        self.position = position
        for number, stream in self._streams.items():
            stream.seek(position.positions[number])

    def close(self) -> None:
        self._close_streams()
        self._held = None

    def _close_streams(self) -> None:
        """Close the streams, or let the thread do that when its call has returned."""
        streams, self._streams = self._streams, {}

        def close() -> None:
            for stream in streams.values():
                stream.close()

        ahead = self._next_output
        if ahead is None:
            close()
        else:
            self._next_output = NextOutput()
            ahead.close(close)

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

    def _end(self, number: int, stream: Stream) -> None:
        """Note that a stream has ended, whose turn it was."""
        position = self.position
        position.ended[number] = True
        if _reports_end(position):
            position.positions[number] = stream.position
        position.pass_turn()

    def _taken(self, stream: Stream) -> Any:
        """Return the next output of a stream; measure it if that is due."""
        if self._held is not None:
            self._times.left += 1  # Nothing is computed.
            return self._held[0]
        if self._times.left:
            return self._computed(stream)
        if not isinstance(stream, BufferedStream):
            return self._times.measured(REST, self._computed, stream)
        if stream.ready:
            self._times.left += 1  # Nothing is computed.
            return stream.next()
        with self._times.measuring() as measured:
            began = hot_run.begin()
            output = stream.next()
            if hot_run.end(REST, began):
                measured.outputs += 1 + stream.ready
        return output

    def _computed(self, stream: Stream) -> Any:
        ahead = self._next_output
        return ahead.take() if ahead is not None and ahead.begun else stream.next()

    def _begin_next(self) -> None:
        """Let the stream that is due compute ahead, unless it does."""
        ahead, position = self._next_output, self.position
        if ahead is None or ahead.begun or all(position.ended):
            return
        number = position.next_stream
        while position.ended[number]:
            number = (number + 1) % position.streams
        ahead.begin((self._streams.get(number) or self._open(number)).next)

    def _leave_fork(self) -> None:
        """In a fork, begin anew from where the position is."""
        if self._next_output is not None and self._next_output.lost:
            self._next_output = NextOutput()
            self._streams = {}

    def _account(self, stream: Stream, instead: Exception | NoOutput | None) -> None:
        """Tell of the bad records before an output, or what came instead of one."""
        passed = stream.record_errors.passed
        if self._tally is not None and passed is not None:
            self._tally.account(passed, instead)
            self.position.errors = self._tally.count


def _reports_end(position: RunPosition) -> bool:
    """Whether a stream that has ended is reported to stand where its reading ended.

    Grain's single stream without workers does that; with several, one that has ended
    keeps its last output's position.
    """
    return position.worker_count == 0 and position.streams == 1
