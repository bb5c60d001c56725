"""Decode records that are ``.npy`` files, of every version and byte order."""

from __future__ import annotations

import ast
import functools
import math
import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill.errors import CorruptRecord
from gristmill.transforms._decoding import Decoder

__all__ = ["DecodeNpy"]

_MAGIC = b"\x93NUMPY"
# The magic, the version, and up to four bytes for the header's length.
_MIN_HEADER_BYTES = len(_MAGIC) + 6
# The size in bytes of the header's length, and the header's encoding, by version.
_VERSIONS = {(1, 0): (2, "latin1"), (2, 0): (4, "latin1"), (3, 0): (4, "utf8")}
# NumPy's own limit, because parsing a longer text may exhaust the stack.
_MAX_HEADER_BYTES = 10_000


class _Layout(NamedTuple):
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


class DecodeNpy(Decoder):
    """Decode the bytes of a ``.npy`` file to the array that `numpy.load` returns.

    Args:
        key: The field of a dict to decode; other fields stay unchanged. None decodes
            the record itself.

    The array has the shape and dtype of the file, is writable and owns its memory.
    Files of Python objects are refused, because they are pickles, which run code.

    Raises:
        CorruptRecord: The bytes are not a ``.npy`` file, have the wrong size for its
            shape, or contain objects. Raised by `map`.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> np.save(file, np.arange(3))
        >>> DecodeNpy().map(file.getvalue())
        array([0, 1, 2])
    """

    def decode(self, data: memoryview) -> npt.NDArray[Any]:
        """Return the array of a file."""
        data_start = _data_start(data)
        layout = _parse_header(bytes(data[:data_start]))
        if len(data) - data_start != layout.size:
            raise CorruptRecord(
                f"the .npy file must have {layout.size} bytes of data for shape"
                f" {layout.shape} of {layout.dtype}, got {len(data) - data_start}. It"
                " was cut off or written over."
            )
        try:
            out: npt.NDArray[Any] = np.ndarray(
                layout.shape, layout.dtype, order="F" if layout.fortran else "C"
            )
        except ValueError as error:  # Too many axes, or a huge one next to a 0.
            raise CorruptRecord(
                f"the .npy file has shape {layout.shape}: {error}"
            ) from None
        if layout.size:
            flat = out.reshape(-1, order="A").view(np.uint8)
            flat[:] = np.frombuffer(data, np.uint8, offset=data_start)
        return out

    @property
    def decodes_blocks(self) -> bool:
        """True if `decode_block` can be called: records themselves are decoded.

        False for a subclass that overrides the decoding.
        """
        methods = type(self).map, type(self).decode
        return self._key is None and methods == (DecodeNpy.map, DecodeNpy.decode)

    def decode_block(
        self,
        data: npt.NDArray[np.uint8],
        offsets: Int64Array,
        alloc: Alloc | None = None,
        rules: Rules = "plain",
    ) -> npt.NDArray[Any] | None:
        """Return the stacked results of `map`, or None.

        Args:
            data: The bytes of all records, of shape ``(n,)``.
            offsets: The bounds of the records, of shape ``(k + 1,)``: record ``i`` is
                ``data[offsets[i]:offsets[i + 1]]``.
            alloc: Allocates the array of the block.  None: NumPy allocates it.
            rules: Has no effect on an array.

        Returns:
            An array of shape ``(k, *S)``. None unless all files are valid and have the
            same header, of native numbers in C order; use `map` for other files.

        Raises:
            TypeError: `decodes_blocks` is False.
        """
        if not self.decodes_blocks:
            raise TypeError(
                f"decode_block cannot be used with {self!r}, which decodes a field."
                " Check decodes_blocks before the call."
            )
        count = len(offsets) - 1
        sizes = np.diff(offsets)
        if count < 1 or (sizes != sizes[0]).any():
            return None
        rows = data[offsets[0] : offsets[-1]].reshape(count, sizes[0])
        try:
            data_start = _data_start(rows[0].data)
            layout = _parse_header(rows[0, :data_start].tobytes())
        except CorruptRecord:
            return None
        if not layout.is_concatenable or data_start + layout.size != sizes[0]:
            return None
        if (rows[:, :data_start] != rows[0, :data_start]).any():
            return None
        shape = (count, *layout.shape)
        allocate = np.empty if alloc is None else alloc
        out: npt.NDArray[Any] = allocate(shape, layout.dtype)
        if layout.size:
            out.reshape(-1).view(np.uint8).reshape(count, -1)[:] = rows[:, data_start:]
        return out

    def __repr__(self) -> str:
        return f"DecodeNpy({'' if self._key is None else f'key={self._key!r}'})"


def _data_start(data: memoryview) -> int:
    """Return the position of a file's data."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise CorruptRecord(
            f"a .npy file must begin with {_MAGIC!r}, got {len(data)} bytes that begin"
            f" with {bytes(data[: len(_MAGIC)])!r}."
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
    if header_end - header_start > _MAX_HEADER_BYTES:
        raise CorruptRecord(
            f"the .npy file must have a header of at most {_MAX_HEADER_BYTES} bytes,"
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
def _parse_header(header: bytes) -> _Layout:
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
    return _Layout(shape, dtype, fortran)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except SyntaxError:  # Python 2 wrote its long integers as 3L.
        return ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text))
