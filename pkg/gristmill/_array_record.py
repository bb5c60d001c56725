"""The class behind sources.ArrayRecordDataSource; needs the array-record package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, SupportsIndex

from array_record.python import array_record_data_source

__all__ = ["ArrayRecordDataSource"]


class ArrayRecordDataSource(array_record_data_source.ArrayRecordDataSource):  # type: ignore[misc]
    """Serve the records of ArrayRecord files, in the order of the files.

    Args:
        paths: A path, a FileInstruction (filename, skip, take,
            examples_in_shard), or a list of these, at least one.
        reader_options: Options of the reader by name, such as
            ``{"index_storage_option": "offloaded"}``. None for its defaults.

    Record ``i`` is ``bytes``.

    Raises:
        ValueError: The list of paths is empty.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Any | Sequence[Any],
        reader_options: dict[str, str] | None = None,
    ) -> None:
        super().__init__(paths, reader_options)

    def __getitem__(self, record_key: SupportsIndex) -> bytes:
        record: bytes = super().__getitem__(record_key)
        return record

    def __getitems__(self, record_keys: Sequence[int]) -> list[bytes]:
        records: list[bytes] = super().__getitems__(record_keys)
        return records

    @property
    def paths(self) -> Any:
        """The paths or instructions as the reader holds them."""
        return self._paths


# Pickles name the public place, which imports this module when it is asked.
ArrayRecordDataSource.__module__ = "gristmill.sources"
