"""Opens a file of a million records, by Gristmill or by the array_record package."""

from collections.abc import Callable, Iterator
from typing import Any

from harness import Measurement, Settings
from record_files import array_record

RECORDS = 1_000_000


def path(settings: Settings) -> str:
    """Returns the path of the file: 100 bytes a record, uncompressed."""
    count = settings.records or RECORDS

    def records() -> Iterator[bytes]:
        return (b"%0100d" % i for i in range(count))

    return array_record(f"many-{count}", "group_size:1,uncompressed", records)


def gristmill() -> Callable[[str], Any]:
    from gristmill.sources import ArrayRecordDataSource

    return ArrayRecordDataSource


def wheel() -> Callable[[str], Any]:
    from array_record.python.array_record_module import ArrayRecordReader

    return ArrayRecordReader


def read(reader: Any) -> None:
    """Reads a record from an open file."""
    if hasattr(reader, "read"):
        reader.read([7])
    else:
        reader[7]


def contestants(
    measure: Callable[[Callable[[str], Any], str, Settings], Measurement],
) -> dict[str, Callable[[Settings], Measurement]]:
    """Returns both contestants; `measure` is called with the opening function and the
    path."""
    return {
        "gristmill": lambda settings: measure(gristmill(), path(settings), settings),
        "wheel": lambda settings: measure(wheel(), path(settings), settings),
    }
