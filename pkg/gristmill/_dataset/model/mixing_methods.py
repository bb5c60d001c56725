"""The methods `MapDataset.mix` and `IterDataset.mix`."""

# mypy: disable-error-code="no-any-return"
# `build` returns Any: nodes are registered by name.

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

import numpy as np

from gristmill._base.types import Array
from gristmill._dataset.model.node import build
from gristmill._dataset.model.token_count import Tokens
from gristmill.mixing import AtEnd, MixSchedule, MixUnit, Weights

# The kind of the datasets, such as MapDataset[int].
AnyDataset = TypeVar("AnyDataset")
Lengths: TypeAlias = Sequence[int] | Array[np.integer[Any]] | None
Epochs: TypeAlias = int | None


class Mixing(TypedDict, total=False):
    """Arguments of `mix` that are passed by name."""

    unit: MixUnit
    epochs: Epochs | Sequence[Epochs] | Mapping[str, Epochs]
    at_end: AtEnd


class MapMixing(Mixing, total=False):
    """Arguments of `MapDataset.mix` that are passed by name."""

    lengths: Sequence[Lengths] | Mapping[str, Lengths] | None


class IterMixing(Mixing, total=False):
    """Arguments of `IterDataset.mix` that are passed by name."""

    tokens: Tokens


class MixesMapDatasets(abc.ABCMeta):
    """Defines `MapDataset.mix`."""

    def mix(
        cls,
        datasets: Sequence[AnyDataset] | Mapping[str, AnyDataset],
        weights: Weights | MixSchedule | None = None,
        **how: Unpack[MapMixing],
    ) -> AnyDataset:
        """Mix several datasets, in proportion to weights.

        The dataset ends when a part would run out.  Shuffle and repeat the parts.

        Args:
            datasets: The parts, at least 1, or a mapping of names to them.
            weights: As many positive numbers, with the same names; None for equal ones.
                A `mixing.MixSchedule` changes them.
            **how: By name:

                - unit: "tokens" if weights are shares of tokens, instead of "elements".
                  The next element is from the part that lags most behind its share.
                - lengths: The tokens of each element, an array for each part: those of
                  an epoch before its shuffles, slices, repeats and maps.  None if the
                  part's source has a method `lengths`, as sources of tokens do.
                - epochs: How often each part is read, an int or one for each part; None
                  for endless epochs.
                - at_end: "drop" continues without a part that has ended, "stop" ends.

        Raises:
            ValueError: A weight, length or number of epochs is invalid or missing.
            TypeError: An argument has the wrong type.

        Returns:
            The mixture.  Its element k depends only on k.

        Example:
            >>> parts = [gristmill.MapDataset.range(n, n + 5) for n in (0, 10)]
            >>> list(gristmill.MapDataset.mix(parts, [2, 1]))
            [0, 1, 10, 2, 3, 11, 4]
            >>> how = {"unit": "tokens", "lengths": [[1] * 5, [2] * 5]}
            >>> list(gristmill.MapDataset.mix(parts, [1, 1], **how))
            [0, 10, 1, 2, 11, 3, 4, 12]
        """
        return build("MapDataset.mix", datasets, weights, **how)


class MixesIterDatasets(abc.ABCMeta):
    """Defines `IterDataset.mix`."""

    def mix(
        cls,
        datasets: Sequence[AnyDataset] | Mapping[str, AnyDataset],
        weights: Weights | MixSchedule | None = None,
        **how: Unpack[IterMixing],
    ) -> AnyDataset:
        """Mix several datasets, in proportion to weights.

        The dataset ends when the part of the next element has ended.

        Args:
            datasets: The parts, or a mapping of names to them: a state by name can be
                restored after parts or weights have changed.
            weights: As many positive numbers, with the same names; None for equal ones.
                A `mixing.MixSchedule` changes them.
            **how: By name:

                - unit: "tokens" if weights are shares of tokens, instead of "elements".
                  The next element is from the part that lags most behind its share.
                - tokens: The field that has the tokens of an element, or a function
                  that counts them.  By default the element is an array of them.
                - epochs: How often each part is read, an int or one for each part; None
                  for endless epochs.  Each epoch has the same order.
                - at_end: "drop" continues without a part that has ended, "stop" ends.

        Raises:
            ValueError: A weight or number of epochs is invalid.
            TypeError: An argument has the wrong type.

        Returns:
            The mixture.

        Example:
            >>> short = gristmill.MapDataset.source([[1], [2], [3]]).to_iter_dataset()
            >>> long = gristmill.MapDataset.source([[4] * 2] * 3).to_iter_dataset()
            >>> list(gristmill.IterDataset.mix([short, long], unit="tokens"))
            [[1], [4, 4], [2], [3], [4, 4]]
        """
        return build("IterDataset.mix", datasets, weights, **how)
