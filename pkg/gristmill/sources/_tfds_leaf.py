"""A feature of a TFDS dataset that holds values, and the decoding of its value."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.errors import CorruptRecord
from gristmill.sources._tfds_images import Decode, image_decoder
from gristmill.transforms._features import FixedLen, Ragged, RaggedArray, VarLen

__all__ = ["FLAT", "LENGTHS", "Leaf", "Shape", "check_bytes"]

Shape = tuple[int | None, ...]
# Names, in records, of the parts of a feature in several sequences: its values, and the
# lengths of rows, followed by the number of the level, from 0 for the outermost.
FLAT, LENGTHS = "ragged_flat_values", "ragged_row_lengths_"


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A feature that holds values and no other features."""

    names: tuple[str, ...]  # Path of the feature in an element.
    dtype: np.dtype[Any]  # Dtype of the values; object for bytes.
    shape: Shape = ()  # Shape of one value, with None for an unknown extent.
    # How a value is stored: "none": as plain values; "bytes" or "zlib": as the raw or
    # compressed bytes of an array; "image": as the bytes of an image file.
    encoding: str = "none"
    # Lengths of the sequences around it, the outermost first; None if it may vary.
    lengths: Shape = ()

    @property
    def key(self) -> str:
        """The name of the feature in a record."""
        return "/".join(self.names)

    def parts(self) -> dict[str, FixedLen | VarLen | Ragged]:
        """Return the parts to request from a record, by their names in the record."""
        key, stored = self.key, self.dtype if self.encoding == "none" else object
        if self.stores_shape:
            shape = VarLen(np.int64)
            return {f"{key}/shape": shape, f"{key}/value": FixedLen((), bytes)}
        if len(self.lengths) > 1:
            rows = range(len(self.lengths) - 1)
            lengths = [Ragged.RowLengths(f"{key}/{LENGTHS}{i}") for i in rows]
            flat = f"{key}/{FLAT}"
            return {key: Ragged(stored, value_key=flat, partitions=lengths)}
        if self.lengths or (self.encoding == "none" and None in self.shape):
            return {key: VarLen(stored)}
        return {key: FixedLen(self.shape if self.encoding == "none" else (), stored)}

    def decoder(self) -> Decode | None:
        """Return a function from a value's bytes to an array; None for plain values."""
        if self.encoding == "none":
            return None
        if self.encoding == "image":
            return image_decoder(self.dtype, self.shape)
        return self._array

    def value(self, parsed: Mapping[str, Any], decode: Decode | None) -> Any:
        """Return the value in a parsed record.

        Args:
            parsed: The values of `parts`.
            decode: The result of `decoder`.

        Raises:
            CorruptRecord: The record has no such value.
        """
        with check_bytes(self.key):
            return self._value(parsed, decode)

    @property
    def stores_shape(self) -> bool:
        """True if records store the shape of the value next to the value."""
        return self.encoding in ("bytes", "zlib") and self.shape.count(None) > 1

    def extents(self) -> tuple[int, ...]:
        """Return the shape for `numpy.reshape`."""
        return _extents(self.shape)

    def _value(self, parsed: Mapping[str, Any], decode: Decode | None) -> Any:
        if self.stores_shape:
            shape = parsed[f"{self.key}/shape"]
            return self._array(parsed[f"{self.key}/value"], tuple(shape.tolist()))
        stored = parsed[self.key]
        if len(self.lengths) > 1:
            # Values in several sequences are plain; see _tfds_features._check_nesting.
            return _rows(stored)
        if decode is None:
            return self._plain(stored)
        if not self.lengths:
            return decode(stored)
        (length,) = self.lengths
        if length is not None and len(stored) != length:
            raise ValueError(f"expected {length} values, found {len(stored)}")
        return [decode(data) for data in stored]

    def _plain(self, stored: Any) -> Any:
        shape = self.extents()
        if self.lengths:
            return list(stored.reshape(*_extents(self.lengths), *shape))
        if not shape:
            return stored.item() if isinstance(stored, np.generic) else stored
        return stored.reshape(shape)

    def _array(self, data: bytes, shape: Shape | None = None) -> npt.NDArray[Any]:
        raw = zlib.decompress(data) if self.encoding == "zlib" else data
        extents = self.extents() if shape is None else _extents(shape)
        # A bytearray, so that the caller may change the array.
        return np.frombuffer(bytearray(raw), self.dtype).reshape(extents)


def _extents(shape: Shape) -> tuple[int, ...]:
    return tuple(-1 if extent is None else extent for extent in shape)


def _rows(ragged: Any) -> Any:
    """Return rows of different lengths as nested lists of arrays."""
    if not isinstance(ragged, RaggedArray):
        return ragged
    values = _rows(ragged.values)
    return [values[a:b] for a, b in itertools.pairwise(ragged.row_splits.tolist())]


@contextlib.contextmanager
def check_bytes(key: str) -> Iterator[None]:
    """Convert ValueError and zlib.error to CorruptRecord; `key` names the feature."""
    try:
        yield
    except (ValueError, zlib.error) as error:
        raise CorruptRecord(f"feature {key!r}: {error}") from error
