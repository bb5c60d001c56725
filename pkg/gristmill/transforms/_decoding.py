"""What the transforms share that decode bytes, or the bytes in a field of a dict."""

from __future__ import annotations

import abc
from typing import Any

import numpy.typing as npt

from gristmill.transforms import Map

__all__ = ["Decoder"]


class Decoder(Map):
    """Decode records that are bytes, or the field `key` of records that are dicts."""

    def __init__(self, key: str | None = None) -> None:
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key must be a str or None, got {type(key).__name__}.")
        self._key = key

    @abc.abstractmethod
    def decode(self, data: memoryview) -> npt.NDArray[Any]:
        """Return the array that the bytes are of."""

    def map(self, element: Any) -> Any:
        """Return the array, or a new dict that has it in place of the bytes.

        Raises:
            CorruptRecord: The bytes cannot be decoded.
            KeyError: There is no such field.
            TypeError: There are no bytes to decode.
        """
        if self._key is None:
            return self.decode(self._buffer(element))
        if not isinstance(element, dict):
            raise TypeError(
                f"{self!r} needs a dict, got {type(element).__name__}. Without key= it"
                " decodes the record itself."
            )
        if self._key not in element:
            raise KeyError(
                f"{self!r}: the record has no field {self._key!r}, only"
                f" {', '.join(map(repr, element))}."
            )
        return {**element, self._key: self.decode(self._buffer(element[self._key]))}

    def _buffer(self, data: Any) -> memoryview:
        try:
            return memoryview(data).cast("B")
        except TypeError:
            hint = ""
            if isinstance(data, dict) and self._key is None:
                hint = " To decode a field of a dict, name it by key=."
            raise TypeError(
                f"{self!r} needs bytes, got {type(data).__name__}.{hint}"
            ) from None
