"""Names that Grain keeps in its experimental namespace."""

from __future__ import annotations

from gristmill._core import index_shuffle
from gristmill._rng_pool import RngPool
from gristmill.transforms import FlatMap as FlatMapTransform
from gristmill.transforms import MapWithIndex as MapWithIndexTransform

__all__ = ["FlatMapTransform", "MapWithIndexTransform", "RngPool", "index_shuffle"]
