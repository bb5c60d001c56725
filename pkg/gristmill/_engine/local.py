"""Runs the streams of a program in this process, without workers."""

from __future__ import annotations

from typing import Any

from gristmill._base.types import Int64Array
from gristmill._engine.compilation import LoaderProgram
from gristmill._engine.state import Position
from gristmill._engine.stream import NO_KEYS, Stream
from gristmill._engine.tally import Account
from gristmill._engine.tolerance import GIVEN_UP, NOTHING, Overrun


class LocalRun:
    """Delivers outputs of all streams in turn.

    Args:
        program: The compiled pipeline.
        position: Where to start.
        account: Told of bad records.

    Attributes:
        position: Kept up to date; what a checkpoint says.
        keys: Record keys of the last output, shape (k,).
    """

    def __init__(
        self, program: LoaderProgram, position: Position, account: Account
    ) -> None:
        self.position = position
        self.keys: Int64Array = NO_KEYS
        self._program = program
        self._account = account
        self._tolerant = program.tolerant
        # The output due, in a tuple, where it was held back for its bad records.
        self._held: tuple[Any] | None = None
        self._streams: list[Stream] = []
        # Grain's single stream without workers reports where its reading ended;
        # with several, a stream that has ended keeps its last output's position.
        self._reports_end = position.worker_count == 0 and position.streams == 1

    def next(self) -> Any:
        """The next output.

        Raises:
            StopIteration: All streams have ended.
            TooManyErrors: More records failed than may; the output is due again.
        """
        position, held = self.position, self._held
        streams = self._streams or self._open()
        while True:
            turn = position.turn
            if position.ended[turn]:
                if all(position.ended):
                    raise StopIteration
                position.turn = (turn + 1) % len(streams)
                continue
            stream = streams[turn]
            try:
                output = stream.next() if held is None else held[0]
            except StopIteration:
                if not stream.mishaps.records:
                    position.ended[turn] = True
                    if self._reports_end:
                        position.vectors[turn] = stream.vector
                    position.turn = (turn + 1) % len(streams)
                    continue
                output = NOTHING
            except Overrun:
                output = GIVEN_UP
            except Exception:
                # The failed output has had its turn, so that the others keep theirs.
                position.vectors[turn] = stream.vector
                position.turn = (turn + 1) % len(streams)
                if stream.mishaps.records:
                    self._account.settle(stream.mishaps.passed)
                    position.errors = self._account.count
                raise
            if self._tolerant and stream.mishaps.records:
                self._held = (output,)
                account = self._account
                tell = account.refuse if output is GIVEN_UP else account.admit
                tell(stream.mishaps.passed)
                self._held = held = None
                position.errors = self._account.count
            if output is NOTHING or output is GIVEN_UP:
                position.vectors[turn] = stream.vector
                position.turn = (turn + 1) % len(streams)
                continue
            self.keys = stream.keys
            position.vectors[turn] = stream.vector
            position.turn = (turn + 1) % len(streams)
            return output

    def start_prefetch(self) -> None:
        """Begin to read ahead in every stream."""
        for stream in self._streams or self._open():
            stream.start_prefetch()

    def restart(self, position: Position) -> None:
        """Go on from another position with as many streams."""
        self.keys = NO_KEYS
        self._held = None
        self.position = position
        for stream, vector in zip(self._streams, position.vectors, strict=False):
            stream.seek(vector)
        self._reports_end = position.worker_count == 0 and position.streams == 1

    def close(self) -> None:
        """Stop reading ahead."""
        for stream in self._streams:
            stream.close()
        self._streams = []
        self._held = None

    def _open(self) -> list[Stream]:
        for number, vector in enumerate(self.position.vectors):
            stream = self._program.open_stream(number)
            stream.seek(vector)
            self._streams.append(stream)
        return self._streams
