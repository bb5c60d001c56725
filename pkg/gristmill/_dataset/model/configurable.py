"""Options and seeds of a dataset."""

# mypy: disable-error-code="no-any-return"
# `build` returns Any.

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from gristmill._dataset.model.node import build
from gristmill._dataset.model.options import DatasetOptions

DatasetT = TypeVar("DatasetT")


class Configurable(Generic[DatasetT]):
    """A dataset with options and a seed; `nodes/with_options.py` sets them.

    `DatasetT` is the public class of the dataset.
    """

    # The name of `DatasetT`, by which nodes are registered.
    _FACE: ClassVar[str]

    def seed(self, seed: int) -> DatasetT:
        """Set the seed of random steps after this one, up to the next `seed`.

        Args:
            seed: An int, at least 0.

        Returns:
            The new dataset.
        """
        return build(f"{self._FACE}.seed", self, seed=seed)

    def set_options(self, options: DatasetOptions) -> DatasetT:
        """Set options for the whole chain.

        Args:
            options: Those that are set override the options of earlier nodes.

        Returns:
            The new dataset.
        """
        return build(f"{self._FACE}.set_options", self, options)
