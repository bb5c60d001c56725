"""Checks of what datasets are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gristmill import transforms
from gristmill._base.checks import check_callable, check_finite, kind
from gristmill._dataset.model.node import Dataset

# The method of a dataset that takes each kind of transform; most transforms have one of
# the same name, which is called.
METHODS: dict[type, str] = {
    transforms.Map: "map",
    transforms.MapWithIndex: "map_with_index",
    transforms.RandomMap: "random_map",
    transforms.Filter: "filter",
    transforms.FlatMap: "apply",
    transforms.Batch: "batch",
}


def call_of(transform: Any, wanted: type) -> Any:
    """What is called for an element: a transform's method, or the function itself.

    Raises:
        TypeError: It is neither; the text names the method that takes it.
    """
    if isinstance(transform, wanted):
        return getattr(transform, METHODS[wanted])
    if isinstance(transform, type) and issubclass(transform, tuple(METHODS)):
        raise TypeError(
            f"{METHODS[wanted]} got {kind(transform)}. Pass an instance of it:"
            f" {transform.__name__}()."
        )
    found = next((each for each in METHODS if isinstance(transform, each)), None)
    advice = f" Pass a function, or an instance of transforms.{wanted.__name__}."
    if found is not None:
        advice = f" It is a transforms.{found.__name__}: use ds.{METHODS[found]}(...)."
    check_callable(f"The transform of {METHODS[wanted]}", transform, advice)
    return transform


def listed(datasets: Any, name: str) -> list[Any]:
    """Several datasets as a list; one alone is refused."""
    if isinstance(datasets, (Dataset, str)) or not isinstance(datasets, Iterable):
        raise TypeError(
            f"{name} takes a sequence of datasets, got {kind(datasets)}. Put them in a"
            " list."
        )
    return list(datasets)


def check_weights(weights: Any) -> None:
    """Refuse what are no finite numbers, one for each of several datasets."""
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise TypeError(
            f"weights must be a sequence of numbers, got {kind(weights)}. Pass one for"
            " each dataset."
        )
    for number, weight in enumerate(weights):
        check_finite(f"weights[{number}]", weight)


def check_names(datasets: Any, weights: Any) -> None:
    """Refuse weights that are for other datasets, where these have names."""
    if weights is None:
        return
    if isinstance(datasets, Mapping) != isinstance(weights, Mapping):
        raise TypeError(
            "datasets and weights must both be mappings, or both be sequences, got"
            f" {kind(datasets)} and {kind(weights)}."
        )
    if isinstance(datasets, Mapping) and datasets.keys() != weights.keys():
        raise ValueError(
            f"weights are for {sorted(map(str, weights))}, but the datasets are"
            f" {sorted(map(str, datasets))}. Give both the same names."
        )
