"""Base classes of transforms of records, or of values in a field of a dict."""

from __future__ import annotations

import abc
from typing import Any

import numpy.typing as npt

from gristmill.transforms._kinds import Map

__all__ = ["Decoder", "Keyed"]


class Keyed:
    """Transforms records themselves, or the field `key` of records that are dicts."""

    # The verb of the transform in error messages.
    _verb = "take"

    def __init__(self, key: str | None = None) -> None:
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key must be a str or None, got {type(key).__name__}.")
        self._key = key

    def _value(self, element: Any) -> Any:
        """Return the value to transform."""
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

    def _replace_value(self, element: Any, value: Any) -> Any:
        """Return the new value, or a new dict that contains it in the field."""
        return value if self._key is None else {**element, self._key: value}

    def _type_error(self, value: Any, expected: str) -> TypeError:
        """Return the error for a value of an unsupported type."""
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
        """Return the array that is encoded by the bytes.

        Args:
            data: The bytes, as a memoryview of format ``B``.

        Returns:
            The array.

        Raises:
            CorruptRecord: The bytes cannot be decoded.
        """

    def map(self, element: Any) -> Any:
        """Return the array, or a new dict with the array in place of the bytes.

        Args:
            element: The bytes, or a dict that has them in the field `key`.

        Returns:
            The array, or the new dict.

        Raises:
            CorruptRecord: The bytes cannot be decoded.
            KeyError: The field does not exist.
            TypeError: The value is not bytes.
        """
        return self._replace_value(element, self.decode(self._buffer(element)))

    def _buffer(self, element: Any) -> memoryview:
        data = self._value(element)
        try:
            return memoryview(data).cast("B")
        except TypeError:
            raise self._type_error(data, "bytes") from None
