"""The columns of MosaicML Streaming's shards, and the decoding of samples."""

from __future__ import annotations

import dataclasses
import decimal
import functools
import io
import json
import pickle
import struct
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

from gristmill._base.pillow import import_pillow
from gristmill._base.types import T

__all__ = ["Columns", "DecodeError"]

# Decodes the bytes [begin, end) of a sample.
Decode = Callable[[bytes, int, int], Any]

NUMBERS = frozenset(
    {"uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"}
    | {"float16", "float32", "float64"}
)
# The dtype of an array by its code.
DTYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
# The dtype of a shape, by the low bits of the byte before it.
SHAPE_DTYPES = ("<u1", "<u2", "<u4", "<u8")
IMAGES = frozenset(
    {"pil", "jpeg", "png", "jpeg_array", "jpegarray"}
    | {"list[pil]", "list[jpeg]", "list[png]"}
)

DAMAGE = (
    *(ValueError, LookupError, ArithmeticError, EOFError, OSError, struct.error),
    RecursionError,  # JSON with many levels.
)


class DecodeError(ValueError):
    """Raised if a sample does not suit its columns; the text names the column."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a shard: names, encodings, and sizes in bytes, or 0 if they vary.

    A sample consists of the size of each column whose size varies, as uint32, and the
    values of all columns, in order.
    """

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int, ...]

    def check(self, *, allow_pickle: bool) -> None:
        """Raise ValueError or ImportError if a column cannot be decoded."""
        for name, encoding in zip(self.names, self.encodings, strict=True):
            if encoding == "pkl" and not allow_pickle:
                raise ValueError(
                    f"Column {name!r} has pickles, which may run any code when they are"
                    " read. If you trust the data, pass allow_pickle=True."
                )
            if _decoder(encoding) is None:
                raise ValueError(
                    f"Column {name!r} must have an encoding of MosaicML Streaming 0.13"
                    f" that needs no torch, got {encoding!r}."
                )

    @functools.cached_property
    def decode(self) -> Callable[[bytes], dict[str, Any]]:
        """A function that decodes a sample, or raises DecodeError."""
        return functools.partial(
            _decode_sample,
            struct.Struct(f"<{self.sizes.count(0)}I"),
            [
                (name, _decoder(encoding), size)
                for name, encoding, size in zip(
                    self.names, self.encodings, self.sizes, strict=True
                )
            ],
        )

    def __reduce__(self) -> Any:
        # `decode` is not pickled.
        return Columns, (self.names, self.encodings, self.sizes)


def _decode_sample(
    sizes: struct.Struct, columns: list[tuple[str, Decode, int]], record: bytes
) -> dict[str, Any]:
    if len(record) < sizes.size:
        raise DecodeError(
            f"the sample has {len(record)} bytes, expected at least {sizes.size}"
        )
    varying = iter(sizes.unpack_from(record))
    begin = sizes.size
    sample: dict[str, Any] = {}
    for name, decode, fixed in columns:
        end = begin + (fixed or next(varying))
        if end > len(record):
            raise DecodeError(
                f"column {name!r} has the bytes {begin} to {end} of the sample, which"
                f" has {len(record)}"
            )
        try:
            sample[name] = decode(record, begin, end)
        except ImportError as error:
            raise ImportError(f"column {name!r}: {error}", name=error.name) from error
        except (*DAMAGE, pickle.UnpicklingError) as error:
            raise DecodeError(
                f"column {name!r} cannot be decoded: {type(error).__name__}: {error}"
            ) from error
        begin = end
    if begin != len(record):
        raise DecodeError(
            f"the sample has {len(record)} bytes, its columns have {begin}"
        )
    return sample


@functools.cache
def _decoder(encoding: str) -> Any:
    """Return the Decode of an encoding, or None if it is unknown."""
    if encoding in NUMBERS:
        return functools.partial(_number, np.dtype(encoding))
    if encoding in IMAGES:
        return _image_decoder(encoding)
    name, _, options = encoding.partition(":")
    if name == "ndarray":
        return _array_decoder(options)
    return SIMPLE.get(encoding)


def _bytes(record: bytes, begin: int, end: int) -> bytes:
    return record[begin:end]


def _text(record: bytes, begin: int, end: int) -> str:
    return record[begin:end].decode()


def _int(record: bytes, begin: int, end: int) -> int:
    _check_size(end - begin, 8)
    return int.from_bytes(record[begin:end], "little", signed=True)


def _from_text(convert: Callable[[str], T], record: bytes, begin: int, end: int) -> T:
    return convert(record[begin:end].decode())


def _unpickle(record: bytes, begin: int, end: int) -> Any:
    try:
        return pickle.loads(record[begin:end])
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"this pickle needs a name that cannot be imported: {error}. Install its"
            " package, or add its folder to sys.path.",
            name=getattr(error, "name", None),
        ) from error


# Decoders by encoding.
SIMPLE: dict[str, Decode] = {
    "bytes": _bytes,
    "str": _text,
    "int": _int,
    "str_int": functools.partial(_from_text, int),
    "str_float": functools.partial(_from_text, float),
    "str_decimal": functools.partial(_from_text, decimal.Decimal),
    "json": functools.partial(_from_text, json.loads),
    "pkl": _unpickle,
}


def _number(dtype: np.dtype[Any], record: bytes, begin: int, end: int) -> Any:
    _check_size(end - begin, dtype.itemsize)
    return np.frombuffer(record, dtype, 1, begin)[0]


def _check_size(size: int, expected: int) -> None:
    if size != expected:
        raise ValueError(f"expected {expected} bytes, found {size}")


def _array_decoder(options: str) -> Decode | None:
    """Return the Decode of arrays: options are ``""``, ``dtype`` or ``dtype:shape``."""
    name, _, axes = options.partition(":")
    if options and name not in NUMBERS:
        return None
    dtype = np.dtype(name) if name else None
    try:
        shape = tuple(int(axis) for axis in axes.split(",")) if axes else None
    except ValueError:
        return None
    if shape is not None and min(shape) < 1:
        return None
    return functools.partial(_array, dtype, shape)


def _array(
    dtype: np.dtype[Any] | None,
    shape: tuple[int, ...] | None,
    record: bytes,
    begin: int,
    end: int,
) -> Any:
    at = begin
    if dtype is None:
        dtype = np.dtype(DTYPES[record[at]])
        at += 1
    if shape is None:
        axes = record[at] >> 2
        numbers = np.dtype(SHAPE_DTYPES[record[at] & 3])
        at += 1
        shape = tuple(np.frombuffer(record, numbers, axes, at).tolist())
        at += axes * numbers.itemsize
    if at > end:
        raise ValueError("the dtype and the shape do not fit")
    count, rest = divmod(end - at, dtype.itemsize)
    if rest:
        raise ValueError(f"expected a multiple of {dtype.itemsize} bytes")
    if at % dtype.itemsize == 0:
        return np.frombuffer(record, dtype, count, at).reshape(shape)
    # Copied, so that the items are aligned.
    return np.frombuffer(record[at:end], dtype).reshape(shape)


def _image_decoder(encoding: str) -> Decode:
    """Return the Decode of images, which are PIL images."""
    if encoding == "pil":
        return functools.partial(_raw_image, import_pillow("sources.MDSDataSource"))
    if encoding in ("jpeg", "png"):
        return functools.partial(_image, import_pillow("sources.MDSDataSource"))
    if encoding in ("jpeg_array", "jpegarray"):
        return functools.partial(
            _list, functools.partial(_image, import_pillow("sources.MDSDataSource")), 0
        )
    # The first 4 bytes of a list mean nothing.
    element = _image_decoder(encoding.removeprefix("list[").removesuffix("]"))
    return functools.partial(_list, element, 4)


def _list(
    decode: Decode, head_bytes: int, record: bytes, begin: int, end: int
) -> list[Any]:
    at = begin + head_bytes
    (count,) = struct.unpack_from("<I", record, at)
    if 4 * count > end - at - 4:
        raise ValueError(f"a list of {count} elements does not fit")
    sizes = np.frombuffer(record, "<u4", count, at + 4).astype(np.int64)
    ends = at + 4 + 4 * count + np.cumsum(sizes)
    if count and ends[-1] != end:
        raise ValueError("the sizes of the elements do not suit the size of the list")
    spans: Iterable[tuple[int, int]] = zip(
        (ends - sizes).tolist(), ends.tolist(), strict=True
    )
    return [decode(record, first, last) for first, last in spans]


def _image(images: ModuleType, record: bytes, begin: int, end: int) -> Any:
    return images.open(io.BytesIO(record[begin:end]))


def _raw_image(images: ModuleType, record: bytes, begin: int, end: int) -> Any:
    width, height, mode_bytes = struct.unpack_from("<3I", record, begin)
    pixels = begin + 12 + mode_bytes
    # Before their memory is allocated: a byte has at most 8 pixels.
    if width * height > 8 * max(end - pixels, 0):
        raise ValueError(f"{width} x {height} pixels do not fit")
    mode = record[begin + 12 : pixels].decode()
    return images.frombytes(mode, (width, height), record[pixels:end])
