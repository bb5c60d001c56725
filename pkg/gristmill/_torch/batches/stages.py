"""The stages of a batch: reading from the dataset, and collating."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gristmill._base.object_repr import value_text
from gristmill._engine.stage_times import COLLATE, PIN, REST
from gristmill._hot import run as hot_run


def fetch_timed(fetcher: Any, batch: Any) -> Any:
    """Return the batch of one of torch's fetchers, and time collating if measured."""
    if hot_run.begin() < 0:
        return fetcher.fetch(batch)
    collate = fetcher.collate_fn
    fetcher.collate_fn = _with_timing(collate)
    try:
        return fetcher.fetch(batch)
    finally:
        fetcher.collate_fn = collate


def stages_of(
    dataset: Any, iterable: bool, collate_fn: Callable[[Any], Any]
) -> dict[str, tuple[str, str]]:
    """Return each stage's kind and name, keyed by constants of `stage_times`."""
    method = "__getitems__" if hasattr(dataset, "__getitems__") else "__getitem__"
    method = "__iter__" if iterable else method
    collate_name = getattr(collate_fn, "__qualname__", None) or value_text(collate_fn)
    return {
        REST: ("read", f"{type(dataset).__qualname__}.{method}"),
        COLLATE: ("batch", f"collate_fn {collate_name}"),
        PIN: ("transport", "pinning"),
    }


def _with_timing(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def collate_timed(samples: Any) -> Any:
        stage_start = hot_run.begin()
        batch = collate(samples)
        hot_run.end(COLLATE, stage_start)
        return batch

    return collate_timed
