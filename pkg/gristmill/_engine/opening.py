"""Chooses what computes a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from gristmill._engine.program import Program
from gristmill._engine.record_stream import RecordStream
from gristmill._engine.runnable import Runnable
from gristmill._engine.stream import NativeStream, Stream
from gristmill._engine.tolerant_record_stream import TolerantRecordStream
from gristmill._engine.tolerant_stream import TolerantStream

# By whether steps need records, and whether bad ones are passed over.
KINDS: dict[tuple[bool, bool], Callable[[Program, int, int, bool], Stream]] = {
    (False, False): NativeStream,
    (False, True): TolerantStream,
    (True, False): RecordStream,
    (True, True): TolerantRecordStream,
}


class Opener(Protocol):
    """What opens its streams itself."""

    def open_stream(self, stream: int, at: int) -> Stream:
        """The stream number `stream`, at its beginning."""


def open_stream(
    program: Runnable, stream: int, at: int = 0, look_ahead: bool = True
) -> Stream:
    """The stream number `stream` of a program, at its beginning.

    Args:
        program: The compiled pipeline.
        stream: From 0 to ``program.streams - 1``.
        at: Address of an int64 that is told the record in work; 0 for none.
        look_ahead: Whether records beyond the output in work may be read.
    """
    if isinstance(program, Program):
        kind = KINDS[program.over_records, program.tolerant]
        return kind(program, stream, at, look_ahead)
    return cast(Opener, program).open_stream(stream, at)
