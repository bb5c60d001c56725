"""Decode records that are ``.npy`` files, of every version and byte order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill.errors import CorruptRecord
from gristmill.transforms._decoding import Decoder
from gristmill.transforms._npy_header import find_data_start, parse_header

__all__ = ["DecodeNpy"]


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
        data_start = find_data_start(data)
        layout = parse_header(bytes(data[:data_start]))
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
            data_start = find_data_start(rows[0].data)
            layout = parse_header(rows[0, :data_start].tobytes())
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
