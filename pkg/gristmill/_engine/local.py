"""Computes the streams of a program in this process, one after another."""

from __future__ import annotations

from typing import Any

from gristmill._base.types import Int64Array
from gristmill._engine.record_errors import GiveUp, NoOutput, Tally
from gristmill._engine.state import Position
from gristmill._engine.stream import NO_KEYS, Runnable, Stream


class LocalRun:
    """Computes each output when it is asked for, and delivers all streams in turn.

    `position` is kept up to date.
    """

    def __init__(
        self, program: Runnable, position: Position, tally: Tally | None
    ) -> None:
        self.position = position
        # Of the records that the last output was made of, shape (k,).
        self.keys: Int64Array = NO_KEYS
        self._program = program
        self._tally = tally
        # The output due, in a tuple, where it was held back for its bad records.
        self._held: tuple[Any] | None = None
        self._streams: dict[int, Stream] = {}

    def next(self) -> Any:
        """The next output.

        Raises:
            StopIteration: All streams have ended.
            Exception: What the user's code raised; the output counts as given.
            TooManyErrors: More records failed than may; the output is due again.
        """
        position = self.position
        while True:
            number = position.next_stream
            if position.ended[number]:
                if all(position.ended):
                    raise StopIteration
                position.pass_turn()
                continue
            stream = self._streams.get(number) or self._open(number)
            try:
                output = stream.next() if self._held is None else self._held[0]
            except StopIteration:
                if not stream.record_errors.records:
                    position.ended[number] = True
                    if _reports_end(position):
                        position.vectors[number] = stream.vector
                    position.pass_turn()
                    continue
                output = NoOutput.NOTHING
            except GiveUp:
                output = NoOutput.GIVEN_UP
            except Exception as error:
                # The failed output has had its turn, so that the others keep theirs.
                position.vectors[number] = stream.vector
                position.pass_turn()
                self._account(stream, error)
                raise
            instead = output if isinstance(output, NoOutput) else None
            self._held = (output,)
            self._account(stream, instead)
            self._held = None
            position.vectors[number] = stream.vector
            position.pass_turn()
            if instead is None:
                self.keys = stream.keys
                return output

    def start_prefetch(self) -> None:
        """Begin to read ahead in every stream."""
        for number in range(self.position.streams):
            (self._streams.get(number) or self._open(number)).start_prefetch()

    def restart(self, position: Position) -> None:
        """Go on from another position with as many streams."""
        self.keys = NO_KEYS
        self._held = None
        self.position = position
        for number, stream in self._streams.items():
            stream.seek(position.vectors[number])

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._held = None

    def _open(self, number: int) -> Stream:
        stream = self._program.open_stream(number)
        stream.seek(self.position.vectors[number])
        self._streams[number] = stream
        return stream

    def _account(self, stream: Stream, instead: Exception | NoOutput | None) -> None:
        """Tell of the bad records before an output, or what came instead of one."""
        passed = stream.record_errors.passed
        if self._tally is not None and passed is not None:
            self._tally.account(passed, instead)
            self.position.errors = self._tally.count


def _reports_end(position: Position) -> bool:
    """Whether a stream that has ended is reported to stand where its reading ended.

    Grain's single stream without workers does that; with several, one that has ended
    keeps its last output's position.
    """
    return position.worker_count == 0 and position.streams == 1
