"""What transforms share that work on records, or on the values in a field of a dict."""

from __future__ import annotations

import abc
from typing import Any

import numpy.typing as npt

from gristmill.transforms._kinds import Map

__all__ = ["Decoder", "Keyed"]


class Keyed:
    """Works on records themselves, or on the field `key` of records that are dicts."""

    # What it does to a value, for texts.
    _verb = "take"

    def __init__(self, key: str | None = None) -> None:
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key must be a str or None, got {type(key).__name__}.")
        self._key = key

    def _value(self, element: Any) -> Any:
        """What to work on."""
        if self._key is None:
            return element
        if not isinstance(element, dict):
            raise TypeError(
                f"{self!r} needs a dict, got {type(element).__name__}. Without key= it"
                f" {self._verb}s the record itself."
            )
        if self._key not in element:
            raise KeyError(
                f"{self!r}: the record has no field {self._key!r}, only"
                f" {', '.join(map(repr, element))}."
            )
        return element[self._key]

    def _replaced(self, element: Any, value: Any) -> Any:
        """The value, or a new dict that has it in place of the field's."""
        return value if self._key is None else {**element, self._key: value}

    def _wrong(self, value: Any, expected: str) -> TypeError:
        """Says that a value is of a type that it cannot work on."""
        hint = ""
        if isinstance(value, dict) and self._key is None:
            hint = f" To {self._verb} a field of a dict, name it by key=."
        return TypeError(
            f"{self!r} needs {expected}, got {type(value).__name__}.{hint}"
        )


class Decoder(Keyed, Map):
    """Decode records that are bytes, or the field `key` of records that are dicts."""

    _verb = "decode"

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
        return self._replaced(element, self.decode(self._buffer(element)))

    def _buffer(self, element: Any) -> memoryview:
        data = self._value(element)
        try:
            return memoryview(data).cast("B")
        except TypeError:
            raise self._wrong(data, "bytes") from None
