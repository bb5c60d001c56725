"""The header of a ``.npy`` file, of every version and byte order."""

from __future__ import annotations

import ast
import functools
import math
import re
from typing import Any, NamedTuple

import numpy as np

from gristmill.errors import CorruptRecord

__all__ = ["MAGIC", "MAX_HEADER_BYTES", "NpyLayout", "find_data_start", "parse_header"]

MAGIC = b"\x93NUMPY"
# The magic, the version, and up to four bytes for the header's length.
_MIN_HEADER_BYTES = len(MAGIC) + 6
# The size in bytes of the header's length, and the header's encoding, by version.
_VERSIONS = {(1, 0): (2, "latin1"), (2, 0): (4, "latin1"), (3, 0): (4, "utf8")}
# NumPy's own limit, because parsing a longer text may exhaust the stack.
MAX_HEADER_BYTES = 10_000


class NpyLayout(NamedTuple):
    """The content of a file's header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def size(self) -> int:
        """The size of the data after the header, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_concatenable(self) -> bool:
        """True if stacking such arrays only concatenates their bytes."""
        plain = self.dtype.isnative and self.dtype.kind in "biufcmM"
        return plain and not self.fortran


def find_data_start(data: memoryview) -> int:
    """Return the position of a file's data.

    Args:
        data: The file, or at least its header.

    Raises:
        CorruptRecord: The header is damaged.
    """
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise CorruptRecord(
            f"a .npy file must begin with {MAGIC!r}, got {len(data)} bytes that begin"
            f" with {bytes(data[: len(MAGIC)])!r}."
        )
    if len(data) < _MIN_HEADER_BYTES:
        raise CorruptRecord(
            f"the .npy file must have at least {_MIN_HEADER_BYTES} bytes, got"
            f" {len(data)}."
        )
    version = (data[6], data[7])
    if version not in _VERSIONS:
        raise CorruptRecord(
            "the .npy file must be of version"
            f" {' or '.join(map(str, _VERSIONS))}, got {version}."
        )
    header_start = 8 + _VERSIONS[version][0]
    header_end = header_start + int.from_bytes(data[8:header_start], "little")
    if header_end - header_start > MAX_HEADER_BYTES:
        raise CorruptRecord(
            f"the .npy file must have a header of at most {MAX_HEADER_BYTES} bytes,"
            f" got {header_end - header_start}."
        )
    if len(data) < header_end:
        raise CorruptRecord(
            f"the .npy file must have at least {header_end} bytes, the size of its"
            f" header, got {len(data)}."
        )
    return header_end


# Bounded, because records may have many different shapes.
@functools.lru_cache(1024)
def parse_header(header: bytes) -> NpyLayout:
    """Return the content of a header: the bytes up to `find_data_start`.

    Raises:
        CorruptRecord: The header is damaged, or the array has Python objects.
    """
    version = (header[6], header[7])
    length_bytes, encoding = _VERSIONS[version]
    try:
        text = header[8 + length_bytes :].decode(encoding)
        fields = _literal(text)
        if set(fields) != {"descr", "fortran_order", "shape"}:
            raise ValueError(f"it has the fields {', '.join(fields)}")
        shape, fortran = fields["shape"], fields["fortran_order"]
        if not isinstance(fortran, bool) or not isinstance(shape, tuple):
            raise TypeError("fortran_order is not a bool, or shape is not a tuple")
        if not all(isinstance(extent, int) and extent >= 0 for extent in shape):
            raise ValueError(f"shape is {shape}")
        dtype = np.lib.format.descr_to_dtype(fields["descr"])
    except Exception as error:  # Python and NumPy raise many types on arbitrary text.
        raise CorruptRecord(f"the .npy file has a damaged header: {error}") from None
    if dtype.hasobject:
        raise CorruptRecord(
            f"the .npy file has dtype {dtype}, whose objects are pickled. They are"
            " never loaded, because pickles run code. Save arrays of numbers."
        )
    return NpyLayout(shape, dtype, fortran)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except SyntaxError:  # Python 2 wrote its long integers as 3L.
        return ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text))
