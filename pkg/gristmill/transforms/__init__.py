"""Transforms: the operations that a pipeline applies to its elements.

Subclass one of the abstract classes and pass an instance to a loader.  Instances
are pickled to worker processes and may be called by several threads at once.
"""

from __future__ import annotations

# The annotations of the classes below are resolved in this module.
from collections.abc import Callable as Callable
from typing import TYPE_CHECKING
from typing import Any as Any

from gristmill._base.lazy_names import lazy_getattr, public_names
from gristmill.transforms._bucket import BucketBatch
from gristmill.transforms._features import FixedLen, Ragged, RaggedArray, VarLen
from gristmill.transforms._kinds import (
    AnyTransform as AnyTransform,
)
from gristmill.transforms._kinds import (
    Batch,
    BlockMap,
    DatasetSelectionMap,
    Filter,
    FlatMap,
    Map,
    MapWithIndex,
    RandomMap,
    TfRandomMap,
    Transformation,
    Transformations,
)

if TYPE_CHECKING:
    from gristmill.transforms._example import ParseExample
    from gristmill.transforms._image import DecodeImage
    from gristmill.transforms._npy import DecodeNpy
    from gristmill.transforms._tokenize import Tokenize

__all__ = [
    "Batch",
    "BlockMap",
    "BucketBatch",
    "DatasetSelectionMap",
    "DecodeImage",
    "DecodeNpy",
    "Filter",
    "FixedLen",
    "FlatMap",
    "Map",
    "MapWithIndex",
    "ParseExample",
    "Ragged",
    "RaggedArray",
    "RandomMap",
    "TfRandomMap",
    "Tokenize",
    "Transformation",
    "Transformations",
    "VarLen",
]


# Transforms whose modules are imported when they are used.
_HOMES = {
    "transforms._example": "ParseExample",
    "transforms._image": "DecodeImage",
    "transforms._npy": "DecodeNpy",
    "transforms._tokenize": "Tokenize",
}


# Hidden from type checkers, which would accept every name.
if not TYPE_CHECKING:
    __getattr__ = lazy_getattr(__name__, _HOMES)


def __dir__() -> list[str]:
    return public_names(__all__)
