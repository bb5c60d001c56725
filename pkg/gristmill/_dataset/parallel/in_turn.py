"""Computes the streams of a pipeline in this process, one after another."""

from __future__ import annotations

from typing import Any

from gristmill._dataset.parallel.pipeline import DatasetStream, Pipeline
from gristmill._engine.state import Position


class RunInTurn:
    """Computes each output when it is asked for.  See `LocalRun`.

    Args:
        pipeline: The chain.
        position: Where to start; kept up to date in place.
    """

    def __init__(self, pipeline: Pipeline, position: Position) -> None:
        self.position = position
        self._pipeline = pipeline
        self._streams: dict[int, DatasetStream] = {}

    def next(self) -> Any:
        """The next output of all streams.

        Raises:
            StopIteration: All streams have ended.
            Exception: What the user's code raised; the element counts as given.
        """
        position = self.position
        while True:
            turn = position.turn
            if not position.ended[turn]:
                try:
                    element = self._take(turn)
                except StopIteration:
                    position.ended[turn] = True
                except Exception:
                    self._step()
                    raise
                else:
                    self._step()
                    return element
            elif all(position.ended):
                raise StopIteration
            self._step()

    def start_prefetch(self) -> None:
        """Begin to read ahead in every stream."""
        for number in range(self.position.streams):
            self._stream(number).start_prefetch()

    def restart(self, position: Position) -> None:
        """Go on from another position."""
        self.position = position
        for number, stream in self._streams.items():
            stream.seek(position.vectors[number])

    def close(self) -> None:
        """Stop reading ahead."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _take(self, number: int) -> Any:
        """The next output of one stream, whose position is moved."""
        stream = self._stream(number)
        try:
            return stream.next()
        finally:
            self.position.vectors[number] = stream.vector

    def _stream(self, number: int) -> DatasetStream:
        if number not in self._streams:
            stream = self._pipeline.open_stream(number)
            stream.seek(self.position.vectors[number])
            self._streams[number] = stream
        return self._streams[number]

    def _step(self) -> None:
        self.position.turn = (self.position.turn + 1) % self.position.streams
