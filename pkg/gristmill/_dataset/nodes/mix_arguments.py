"""The arguments of mixtures that count tokens, change weights or drop datasets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from gristmill._base.argument_checks import check_instance, check_integer, kind
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import as_dataset_list
from gristmill._dataset.nodes.repeat import RepeatIterDataset
from gristmill.batching import tree_rules
from gristmill.mixing import (
    AtEnd,
    MixSchedule,
    MixUnit,
    Stage,
    constant_stages,
    scheduled_stages,
)


@dataclasses.dataclass(frozen=True)
class MixRule:
    """The rule by which a mixture selects the dataset of its next element.

    Attributes:
        names: The names of the datasets in the order of their numbers, or None.
        weights: The text of the weights, or of their schedule.
        stages: The stages of weights.
        unit: What weights are shares of.
        progress_unit: What the starts of stages count.
        at_end: Whether the mixture ends with its first dataset, or with its last.
    """

    names: tuple[str, ...] | None
    weights: str
    stages: tuple[Stage, ...]
    unit: MixUnit
    progress_unit: MixUnit
    at_end: AtEnd

    @property
    def counts_tokens(self) -> bool:
        """True if the rule needs the tokens of elements."""
        return "tokens" in (self.unit, self.progress_unit)

    def name_of(self, number: int) -> str:
        """Return the name of a dataset for error messages."""
        return f"dataset {number if self.names is None else repr(self.names[number])}"

    def __str__(self) -> str:
        return f"weights={self.weights}, unit={self.unit!r}, at_end={self.at_end!r}"


def parse_mixture(
    kind_of_parts: type,
    datasets: Any,
    weights: Any,
    rule: tuple[MixUnit, AtEnd],
    epochs: Any,
    counting: tuple[str, object],
) -> tuple[Any, MixRule | None]:
    """Check the arguments of `mix` that both kinds of datasets have.

    Args:
        kind_of_parts: `MapDataset` or `IterDataset`.
        datasets: The datasets, or a mapping of names to them.
        weights: See `MapDataset.mix`.
        rule: The arguments `unit` and `at_end`.
        epochs: The number of epochs of all datasets, or of each: an int, None for
            endless ones.
        counting: The name and the value of the argument about tokens.

    Returns:
        The datasets, each with its epochs, and the rule.  The rule is None if it is
        Grain's; otherwise, the datasets are a list in the order of their numbers.

    Raises:
        ValueError: An argument is invalid.
        TypeError: An argument has the wrong type.
    """
    datasets = _repeat_datasets(kind_of_parts, datasets, epochs)
    parsed = None
    if rule != ("elements", "stop") or isinstance(weights, MixSchedule):
        datasets, parsed = _parse_rule(datasets, weights, *rule)
    name, value = counting
    if value is not None and not (parsed and parsed.counts_tokens):
        raise ValueError(
            f"{name} has no effect on a mixture that does not count tokens, got"
            f" {kind(value)}. Pass unit='tokens', or leave {name} out."
        )
    return datasets, parsed


def _parse_rule(
    datasets: Any, weights: Any, unit: MixUnit, at_end: AtEnd
) -> tuple[list[Any], MixRule]:
    """Return the datasets of a mixture in their order, and its rule."""
    for name, value, options in (("unit", unit, MixUnit), ("at_end", at_end, AtEnd)):
        if value not in get_args(options):
            raise ValueError(
                f"{name} must be one of {get_args(options)}, got {value!r}."
            )
    names = order_names(datasets)
    parts = as_dataset_list(order_by_names(datasets, names), "mix")
    if not parts:
        raise ValueError("There are no datasets to mix. Pass at least one.")
    progress_unit: MixUnit = unit
    if isinstance(weights, MixSchedule):
        progress_unit = "tokens" if weights.unit == "tokens" else "elements"
        stages = scheduled_stages(weights, names, len(parts))
    else:
        check_names(datasets, weights)
        stages = constant_stages(weights, names, len(parts))
    rule = MixRule(
        None if names is None else tuple(names),
        repr(weights) if len(stages) > 1 else str(stages[0].weights),
        tuple(stages),
        unit,
        progress_unit,
        at_end,
    )
    return parts, rule


def _repeat_datasets(kind_of_parts: type, datasets: Any, epochs: Any) -> Any:
    """Return the datasets of a mixture, each with its epochs."""
    if type(epochs) is int and epochs == 1:
        return datasets
    names = order_names(datasets)
    parts = as_dataset_list(order_by_names(datasets, names), "mix")
    for part in parts:
        check_instance("A dataset of mix", part, kind_of_parts, kind_of_parts.__name__)
    counts = _epochs_of_each(epochs, names, len(parts))
    for count in counts:
        _check_epochs(count)
    repeated = [
        part if count == 1 else _repeat(part, count)
        for part, count in zip(parts, counts, strict=True)
    ]
    return repeated if names is None else dict(zip(names, repeated, strict=True))


def _repeat(part: Any, count: int | None) -> Any:
    is_map = isinstance(part, MapDataset)
    return part.repeat(count) if is_map else RepeatIterDataset(part, count)


def _epochs_of_each(
    epochs: Any, names: Sequence[str] | None, count: int
) -> Sequence[Any]:
    """Return the epochs of each of `count` datasets, in the order of their numbers."""
    if isinstance(epochs, Mapping):
        if names is None:
            raise TypeError(
                "epochs has names, but datasets is a sequence. Pass a list of epochs,"
                " or a mapping of datasets."
            )
        if set(epochs) != set(names):
            raise ValueError(
                f"epochs must have the names of the datasets, {sorted(names)}, got"
                f" {sorted(map(str, epochs))}."
            )
        return [epochs[name] for name in names]
    if not isinstance(epochs, Sequence) or isinstance(epochs, (str, bytes)):
        return [epochs] * count
    if names is not None:
        raise TypeError(
            "epochs is a list, but datasets has names. Pass a mapping of names."
        )
    if len(epochs) != count:
        raise ValueError(
            f"epochs must have {count} numbers, one for each dataset, got"
            f" {len(epochs)}."
        )
    return epochs


def _check_epochs(count: Any) -> None:
    if count is None:
        return
    check_integer("epochs", count, " Pass None for endless epochs.")
    if count < 1:
        raise ValueError(f"epochs must be at least 1, got {count}.")


def order_names(values: Any) -> list[str] | None:
    """Return a mapping's names in the order of turns, or None for a sequence."""
    if not isinstance(values, Mapping):
        return None
    return sorted(values) if tree_rules() == "jax" else list(values)


def order_by_names(values: Any, names: list[str] | None) -> Any:
    return values if names is None else [values[name] for name in names]


def check_names(datasets: Any, weights: Any) -> None:
    """Raise if datasets and weights have different names."""
    if weights is None:
        return
    if isinstance(datasets, Mapping) != isinstance(weights, Mapping):
        raise TypeError(
            "datasets and weights must both be mappings, or both be sequences, got"
            f" {kind(datasets)} and {kind(weights)}."
        )
    if isinstance(datasets, Mapping) and datasets.keys() != weights.keys():
        raise ValueError(
            "weights must have the names of the datasets,"
            f" {sorted(map(str, datasets))}, got {sorted(map(str, weights))}."
        )
