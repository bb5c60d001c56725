"""What the features of a TFDS dataset are in its records, and how they are decoded.

TFDS writes each element as a ``tf.train.Example`` and says in ``features.json`` what
its features were.  Here that file becomes a list of leaves, each of which asks
`ParseExample` for what it is made of and turns that into the value that
``tfds.data_source`` gives.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.errors import CorruptRecord
from gristmill.transforms import Map
from gristmill.transforms._example import ParseExample
from gristmill.transforms._features import FixedLen, Ragged, RaggedArray, VarLen
from gristmill.transforms._image import DecodeImage

__all__ = ["DecodeTFDS", "Leaf", "leaves_of"]

Shape = tuple[int | None, ...]
FLAT, LENGTHS = "ragged_flat_values", "ragged_row_lengths_"
CHANNELS = (1, 3, 4)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A feature that holds values and no other features.

    Attributes:
        names: Where it is in an element.
        dtype: Of its values; object is bytes.
        shape: Of one value, None where an extent is not known.
        encoding: "none"; "bytes" or "zlib" for arrays that were written as such;
            "image".
        lengths: Of the sequences that it is in, the outermost first; None where any
            length is possible.
    """

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: Shape = ()
    encoding: str = "none"
    lengths: Shape = ()

    @property
    def key(self) -> str:
        """Its name in a record."""
        return "/".join(self.names)

    def parts(self) -> dict[str, FixedLen | VarLen | Ragged]:
        """What a record must be asked for."""
        key, stored = self.key, self.dtype if self.encoding == "none" else object
        if self._says_shape:
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

    def value(self, parsed: Mapping[str, Any], image: DecodeImage | None) -> Any:
        """The value of a record that was parsed; CorruptRecord where it has none."""
        try:
            return self._value(parsed, image)
        except (ValueError, zlib.error) as error:
            raise CorruptRecord(f"feature {self.key!r}: {error}") from error

    @property
    def _says_shape(self) -> bool:
        return self.encoding in ("bytes", "zlib") and self.shape.count(None) > 1

    def _value(self, parsed: Mapping[str, Any], image: DecodeImage | None) -> Any:
        if self._says_shape:
            shape = parsed[f"{self.key}/shape"]
            return self._array(parsed[f"{self.key}/value"], tuple(shape.tolist()))
        found = parsed[self.key]
        if len(self.lengths) > 1:
            return _rows(found)
        if self.encoding == "none":
            return self._plain(found)
        if not self.lengths:
            return self._decoded(found, image)
        (length,) = self.lengths
        if length is not None and len(found) != length:
            raise ValueError(f"{len(found)} values, expected {length}")
        return [self._decoded(one, image) for one in found]

    def _plain(self, found: Any) -> Any:
        shape = _extents(self.shape)
        if self.lengths:
            return list(found.reshape(*_extents(self.lengths), *shape))
        if not shape:
            return found.item() if isinstance(found, np.generic) else found
        return found.reshape(shape)

    def _decoded(self, data: bytes, image: DecodeImage | None) -> Any:
        return self._array(data, self.shape) if image is None else image.map(data)

    def _array(self, data: bytes, shape: Shape) -> npt.NDArray[Any]:
        plain = zlib.decompress(data) if self.encoding == "zlib" else data
        # A bytearray, so that the array is the caller's to change.
        return np.frombuffer(bytearray(plain), self.dtype).reshape(_extents(shape))


def _extents(shape: Shape) -> tuple[int, ...]:
    return tuple(-1 if extent is None else extent for extent in shape)


def _rows(ragged: Any) -> Any:
    """Rows of different lengths as nested lists of arrays."""
    if not isinstance(ragged, RaggedArray):
        return ragged
    values = _rows(ragged.values)
    return [values[a:b] for a, b in itertools.pairwise(ragged.row_splits.tolist())]


class DecodeTFDS(Map):
    """Turn a record of a TFDS dataset into its element, which is made of leaves."""

    def __init__(self, leaves: list[Leaf]) -> None:
        parts = [leaf.parts() for leaf in leaves]
        self._parse = ParseExample({k: f for part in parts for k, f in part.items()})
        self._leaves = [
            (leaf, DecodeImage(leaf.shape[-1]) if leaf.encoding == "image" else None)
            for leaf in leaves
        ]

    def map(self, element: bytes) -> dict[str, Any]:
        """Return the element, a dict that is nested as the features are."""
        parsed = self._parse.map(element)
        made: dict[str, Any] = {}
        for leaf, image in self._leaves:
            place = made
            for name in leaf.names[:-1]:
                place = place.setdefault(name, {})
            place[leaf.names[-1]] = leaf.value(parsed, image)
        return made


def leaves_of(
    feature: Mapping[str, Any], names: tuple[str, ...] = (), lengths: Shape = ()
) -> Iterator[Leaf]:
    """Yield the leaves of a feature as ``features.json`` has it."""
    if "featuresDict" in feature:
        for name, inner in feature["featuresDict"]["features"].items():
            yield from leaves_of(inner, (*names, name), lengths)
    elif "sequence" in feature:
        length = int(feature["sequence"].get("length", -1))
        longer = (*lengths, None if length < 0 else length)
        yield from leaves_of(feature["sequence"]["feature"], names, longer)
    elif "translation" in feature:
        for language in feature["translation"]["languages"]:
            yield Leaf((*names, language), np.dtype(object), lengths=lengths)
    else:
        leaf = _leaf(feature, names, lengths)
        _check_nesting(leaf, feature)
        yield leaf


def _leaf(feature: Mapping[str, Any], names: tuple[str, ...], lengths: Shape) -> Leaf:
    if "text" in feature:
        return Leaf(names, np.dtype(object), lengths=lengths)
    if "classLabel" in feature:
        return Leaf(names, np.dtype(np.int64), lengths=lengths)
    if "boundingBox" in feature:
        shape = _shape(feature["boundingBox"]) or (4,)
        dtype = np.dtype(feature["boundingBox"].get("dtype", "float32"))
        return Leaf(names, dtype, shape, lengths=lengths)
    if "image" in feature:
        shape = _shape(feature["image"])
        if feature["image"]["dtype"] != "uint8" or shape[-1] not in CHANNELS:
            raise _refusal(names, feature, "not of uint8 with 1, 3 or 4 channels")
        return Leaf(names, np.dtype(np.uint8), shape, "image", lengths)
    tensor = feature.get("tensor")
    if tensor is None:
        raise _refusal(names, feature, "of a kind that is not known here")
    encoding = tensor.get("encoding", "none")
    if encoding not in ("none", "bytes", "zlib") or tensor.get("optional"):
        raise _refusal(names, feature, f"optional or encoded as {encoding!r}")
    dtype = np.dtype(object) if tensor["dtype"] == "string" else _dtype(names, feature)
    return Leaf(names, dtype, _shape(tensor), encoding, lengths)


def _dtype(names: tuple[str, ...], feature: Mapping[str, Any]) -> np.dtype[Any]:
    name: str = feature["tensor"]["dtype"]
    try:
        return np.dtype(name)
    except TypeError:
        raise _refusal(names, feature, f"of {name}, which NumPy has not") from None


def _shape(kind: Mapping[str, Any]) -> Shape:
    extents = kind.get("shape", {}).get("dimensions", ())
    return tuple(None if int(extent) < 0 else int(extent) for extent in extents)


def _check_nesting(leaf: Leaf, feature: Mapping[str, Any]) -> None:
    if leaf.encoding == "none" and leaf.shape.count(None) > 1:
        raise _refusal(leaf.names, feature, "of a shape that no record says")
    if leaf.lengths and leaf.encoding != "image" and None in leaf.shape:
        raise _refusal(leaf.names, feature, "in a sequence, but of unknown shape")
    plain = leaf.encoding == "none" and leaf.shape == ()
    if len(leaf.lengths) > 1 and not (plain and set(leaf.lengths) == {None}):
        why = "in sequences of sequences, but no scalar, or one has a fixed length"
        raise _refusal(leaf.names, feature, why)


def _refusal(
    names: tuple[str, ...], feature: Mapping[str, Any], why: str
) -> ValueError:
    kind = feature.get("pythonClassName", "an unknown feature").rpartition(".")[2]
    return ValueError(
        f"feature {'/'.join(names)!r} is a {kind} {why}: it cannot be decoded without"
        " TFDS. Name the features to read without it, or use tfds.data_source(...) as"
        " data_source, which works as it is."
    )
