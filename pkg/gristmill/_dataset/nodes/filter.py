"""Datasets that drop the elements for which a predicate is false."""

from __future__ import annotations

import functools
import time
from typing import Any, TypeVar

from gristmill import transforms
from gristmill._base import log
from gristmill._base.types import Int64Array
from gristmill._dataset.model.blocks import StepMapDataset
from gristmill._dataset.model.building import builds
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.names import transform_name
from gristmill._dataset.model.options import DatasetOptions
from gristmill._dataset.model.spec import ParentSpec
from gristmill._dataset.nodes.map import Calling
from gristmill._hot import steps

T = TypeVar("T")
WARN_EVERY_S = 60.0
# When the last warning about a transformation was logged.
_warned_at: dict[str, float] = {}


class Filtering(ParentSpec, Calling):
    """A filter dataset of either kind."""

    _TAKES = transforms.Filter

    @functools.cached_property
    def _transform_name(self) -> str:
        if isinstance(self._transform, transforms.Filter):
            return type(self._transform).__name__
        return transform_name(self._transform)


@builds("MapDataset.filter")
class FilterMapDataset(Filtering, StepMapDataset[T]):
    """The parent's elements, None where the predicate is false."""

    _SPARSE = "MapDataset.filter"

    def _step(self, elements: list[Any], indices: Int64Array) -> list[Any]:
        return steps.apply(steps.FILTER, self._call, elements, indices, self._failed)


@builds("IterDataset.filter")
class FilterIterDataset(Filtering, IterDataset[T]):
    """The parent's elements for which the predicate is true."""

    def __iter__(self) -> DatasetIterator[T]:
        return FilterDatasetIterator(self)


class FilterDatasetIterator(steps.FilterStep, NodeIterator[T]):
    """Iterates over the elements for which a predicate is true."""

    _TAKES_IN_STEP = True

    def __init__(self, node: Filtering) -> None:
        NodeIterator.__init__(self, node)
        steps.FilterStep.__init__(self, self._parent, node._call)

    def _judge(self, skipped: int) -> None:
        check_dropped(skipped, str(self), self._ctx.dataset_options)


def check_dropped(skipped: int, name: str, options: DatasetOptions) -> None:
    """Warn or raise where too many of 1000 elements were dropped.

    Raises:
        ValueError: At least ``filter_raise_threshold_ratio`` of them were.
    """
    ratio = skipped / steps.WINDOW
    text = (
        f"Transformation {name} skipped {ratio * 100:.2f} % of the last seen"
        f" {steps.WINDOW} elements. Please check the filtering logic. If this is"
        " intended, filter the data once and store what is left, or set"
        " DatasetOptions.%s to None with WithOptionsIterDataset."
    )
    worst = options.filter_raise_threshold_ratio
    if worst and ratio >= worst:
        raise ValueError(text.replace("%s", "filter_raise_threshold_ratio"))
    warn = options.filter_warn_threshold_ratio
    if warn and ratio >= warn and _may_warn(name):
        log.warning("%s", text.replace("%s", "filter_warn_threshold_ratio"))


def _may_warn(name: str) -> bool:
    """Whether the last warning about a transformation was long enough ago."""
    now = time.monotonic()
    if now - _warned_at.get(name, -WARN_EVERY_S) < WARN_EVERY_S:
        return False
    _warned_at[name] = now
    return True
