"""Decoding the features of a TFDS dataset from its records.

TFDS writes each element as a ``tf.train.Example``, and describes the features in
``features.json``.  This module converts that file to a list of leaves.  Each leaf
requests its parts from `ParseExample`, and converts them to the value that
``tfds.data_source`` returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gristmill.sources._tfds_images import undecodable_reason
from gristmill.sources._tfds_leaf import Leaf, Shape
from gristmill.sources._tfds_nested import NestedLeaf, nest
from gristmill.transforms import Map
from gristmill.transforms._example import ParseExample

__all__ = ["DecodeTFDS", "Leaf", "leaves_of"]

DATASET = "tensorflow_datasets.core.features.dataset_feature.Dataset"


class DecodeTFDS(Map):
    """Decode a record of a TFDS dataset to its element, which consists of leaves."""

    def __init__(self, leaves: Sequence[Leaf | NestedLeaf]) -> None:
        parts = [leaf.parts() for leaf in leaves]
        self._parse = ParseExample({k: f for part in parts for k, f in part.items()})
        self._leaves: list[tuple[Any, Any]] = [
            (leaf, leaf.decoder()) for leaf in leaves
        ]

    def map(self, element: bytes) -> dict[str, Any]:
        """Return the element, a dict that is nested like the features."""
        parsed = self._parse.map(element)
        return nest(
            (leaf.names, leaf.value(parsed, decode)) for leaf, decode in self._leaves
        )


def leaves_of(
    feature: Mapping[str, Any], names: tuple[str, ...] = (), lengths: Shape = ()
) -> Iterator[Leaf | NestedLeaf]:
    """Yield the leaves of a feature, as described in ``features.json``.

    Args:
        feature: The description of the feature.
        names: The feature's path in an element.
        lengths: The lengths of the sequences around it; see `Leaf.lengths`.

    Raises:
        ValueError: A leaf cannot be decoded.
    """
    if "featuresDict" in feature:
        for name, inner in feature["featuresDict"]["features"].items():
            yield from leaves_of(inner, (*names, name), lengths)
    elif feature.get("pythonClassName") == DATASET:
        yield _nested_leaf(feature, names, lengths)
    elif "sequence" in feature:
        longer = (*lengths, _length(feature))
        yield from leaves_of(feature["sequence"]["feature"], names, longer)
    elif "video" in feature:
        video = feature["video"]
        count, *frame = _shape(video) or (None, None, None, 3)
        lengths = (*lengths, count)
        leaf = _image(
            feature, video.get("dtype", "uint8"), tuple(frame), names, lengths
        )
        _check_nesting(leaf, feature)
        yield leaf
    elif "translation" in feature:
        for language in feature["translation"]["languages"]:
            yield Leaf((*names, language), np.dtype(object), lengths=lengths)
    else:
        leaf = _leaf(feature, names, lengths)
        _check_nesting(leaf, feature)
        yield leaf


def _nested_leaf(
    feature: Mapping[str, Any], names: tuple[str, ...], lengths: Shape
) -> NestedLeaf:
    leaves = list(leaves_of(feature["sequence"]["feature"], names))
    if lengths or any(isinstance(leaf, NestedLeaf) for leaf in leaves):
        raise _unsupported(names, feature, "inside a sequence or another dataset")
    plain = tuple(leaf for leaf in leaves if isinstance(leaf, Leaf))
    for leaf in plain:
        if leaf.stores_shape or (leaf.encoding == "none" and None in leaf.shape):
            raise _unsupported(leaf.names, feature, "with a feature of unknown shape")
    return NestedLeaf(names, plain, _length(feature))


def _length(feature: Mapping[str, Any]) -> int | None:
    """Return the length of a sequence, or None if it may vary."""
    length = int(feature["sequence"].get("length", -1))
    return None if length < 0 else length


def _leaf(feature: Mapping[str, Any], names: tuple[str, ...], lengths: Shape) -> Leaf:
    if "text" in feature:
        return Leaf(names, np.dtype(object), lengths=lengths)
    if "classLabel" in feature:
        return Leaf(names, np.dtype(np.int64), lengths=lengths)
    if "boundingBox" in feature:
        shape = _shape(feature["boundingBox"]) or (4,)
        dtype = np.dtype(feature["boundingBox"].get("dtype", "float32"))
        return Leaf(names, dtype, shape, lengths=lengths)
    for kind in ("image", "labeledImage"):
        if kind in feature:
            image = feature[kind]
            dtype = image.get("dtype", "uint8")
            return _image(feature, dtype, _shape(image), names, lengths)
    if feature.get("audio", {}).get("lazyDecode"):
        return Leaf(names, np.dtype(object), lengths=lengths)
    tensor = feature.get("tensor", feature.get("audio"))
    if tensor is None:
        raise _unsupported(names, feature, "of an unsupported kind")
    encoding = tensor.get("encoding", "none").lower()
    if encoding not in ("none", "bytes", "zlib") or tensor.get("optional"):
        raise _unsupported(names, feature, f"optional or encoded as {encoding!r}")
    return Leaf(
        names, _dtype(names, feature, tensor), _shape(tensor), encoding, lengths
    )


def _image(
    feature: Mapping[str, Any],
    dtype: str,
    shape: Shape,
    names: tuple[str, ...],
    lengths: Shape,
) -> Leaf:
    reason = undecodable_reason(dtype, shape[-1])
    if reason is not None:
        raise _unsupported(names, feature, reason)
    return Leaf(names, np.dtype(dtype), shape, "image", lengths)


def _dtype(
    names: tuple[str, ...], feature: Mapping[str, Any], tensor: Mapping[str, Any]
) -> np.dtype[Any]:
    name: str = tensor["dtype"]
    try:
        return np.dtype(object if name == "string" else name)
    except TypeError:
        raise _unsupported(
            names, feature, f"of dtype {name}, which NumPy does not have"
        ) from None


def _shape(kind: Mapping[str, Any]) -> Shape:
    """Return the shape in the description of a kind of feature; () if it has none."""
    extents = kind.get("shape", {}).get("dimensions", ())
    return tuple(None if int(extent) < 0 else int(extent) for extent in extents)


def _check_nesting(leaf: Leaf, feature: Mapping[str, Any]) -> None:
    """Raise ValueError if `Leaf` does not support a leaf's shape in its sequences."""
    if leaf.encoding == "none" and leaf.shape.count(None) > 1:
        raise _unsupported(leaf.names, feature, "of a shape that records do not store")
    if leaf.lengths and leaf.encoding != "image" and None in leaf.shape:
        raise _unsupported(leaf.names, feature, "in a sequence, but of unknown shape")
    plain = leaf.encoding == "none" and leaf.shape == ()
    if len(leaf.lengths) > 1 and not (plain and set(leaf.lengths) == {None}):
        reason = "in sequences of sequences, but not a scalar, or of a fixed length"
        raise _unsupported(leaf.names, feature, reason)


def _unsupported(
    names: tuple[str, ...], feature: Mapping[str, Any], reason: str
) -> ValueError:
    kind = feature.get("pythonClassName", "an unknown feature").rpartition(".")[2]
    return ValueError(
        f"Cannot decode feature {'/'.join(names)!r} without TFDS: it is a {kind}"
        f" {reason}. Pass features= without it, or use tfds.data_source(...) as"
        " data_source instead."
    )
