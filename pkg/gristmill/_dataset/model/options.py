"""Options of a dataset, and the context of its iterators."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from gristmill._base.argument_checks import check_finite, check_instance, check_integer

__all__ = ["DatasetOptions", "ExecutionTrackingMode"]


class ExecutionTrackingMode(enum.Enum):
    """What to measure while iterating over a dataset.

    Attributes:
        DISABLED: Only the measurements that are always made.
        STAGE_TIMING: Also the time of each node of the chain.

    Example:
        >>> options = DatasetOptions(
        ...     execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING
        ... )
        >>> ds = gristmill.MapDataset.range(4).to_iter_dataset().with_options(options)
        >>> iterator = iter(ds)
        >>> print(next(iterator), iterator.report().outputs)
        0 1
    """

    DISABLED = 1
    STAGE_TIMING = 2


# The default of a field, to distinguish "not given" from any value.
_UNSET: Any = object()
_DEFAULTS: dict[str, Any] = {
    "filter_warn_threshold_ratio": 0.9,
    "filter_raise_threshold_ratio": None,
    "execution_tracking_mode": ExecutionTrackingMode.DISABLED,
    "min_shm_size": 0,
}


@dataclasses.dataclass(kw_only=True, frozen=True)
class DatasetOptions:
    """Options of a whole dataset.

    Args:
        filter_warn_threshold_ratio: Log a warning if at least this share of 1000
            consecutive elements is dropped.  None never warns.
        filter_raise_threshold_ratio: Raise a ValueError if at least this share is
            dropped.  None never raises.
        execution_tracking_mode: STAGE_TIMING measures every node.
        min_shm_size: For compatibility with Grain, where workers send arrays of at
            least this many bytes through shared memory.  Gristmill sends every array
            that way and copies small ones out, so this has no visible effect.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: A ratio is not finite.

    Example:
        >>> options = DatasetOptions(filter_warn_threshold_ratio=0.5)
        >>> options.merge(DatasetOptions(min_shm_size=64)).min_shm_size
        64
    """

    filter_warn_threshold_ratio: float | None = _UNSET
    filter_raise_threshold_ratio: float | None = _UNSET
    execution_tracking_mode: ExecutionTrackingMode = _UNSET
    min_shm_size: int = _UNSET
    # The names of the options that were given: `merge` uses only these.
    _user_set_fields: set[str] = dataclasses.field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        for name, default in _DEFAULTS.items():
            if getattr(self, name) is _UNSET:
                object.__setattr__(self, name, default)
            else:
                self._user_set_fields.add(name)
        for name in ("filter_warn_threshold_ratio", "filter_raise_threshold_ratio"):
            if getattr(self, name) is not None:
                check_finite(name, getattr(self, name))
        check_instance(
            "execution_tracking_mode",
            self.execution_tracking_mode,
            ExecutionTrackingMode,
            "an ExecutionTrackingMode",
        )
        check_integer("min_shm_size", self.min_shm_size)

    def merge(self, other: DatasetOptions | None) -> DatasetOptions:
        """Return the options of both. If both set an option, this one's value wins.

        Args:
            other: The other options, or None for no options.

        Returns:
            New options, or these ones if `other` is None.
        """
        if other is None:
            return self
        values = {name: getattr(other, name) for name in other._user_set_fields}
        values |= {name: getattr(self, name) for name in self._user_set_fields}
        return DatasetOptions(**values)


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class MultiprocessingContext:
    """The place of this process among those that share the data.

    Attributes:
        process_index: The number of this process, from 0.
        process_count: The number of processes, at least 1.
    """

    process_index: int = 0
    process_count: int = 1


@dataclasses.dataclass(kw_only=True, slots=True)
class IteratorContext:
    """The context shared by all iterators of a chain.

    Attributes:
        dataset_options: The merged options of the whole chain.
        mp_context: The place of this process.
        is_dataloader_pipeline: Always False, because a `DataLoader` has its own
            context.
        leaves_out_errors: Whether a node skips or replaces elements that fail.
    """

    dataset_options: DatasetOptions = dataclasses.field(default_factory=DatasetOptions)
    mp_context: MultiprocessingContext = dataclasses.field(
        default_factory=MultiprocessingContext
    )
    is_dataloader_pipeline: bool = False
    leaves_out_errors: bool = False

    def merge(self, other: IteratorContext) -> None:
        """Merge the context of another chain into this one.

        Raises:
            ValueError: The chains run in different processes.
        """
        self.dataset_options = self.dataset_options.merge(other.dataset_options)
        if self.mp_context != other.mp_context:
            raise ValueError(
                "Cannot merge contexts from different worker processes:"
                f" {self.mp_context} vs {other.mp_context}. Make all parents of a"
                " dataset in one process."
            )
        self.is_dataloader_pipeline |= other.is_dataloader_pipeline
        self.leaves_out_errors |= other.leaves_out_errors
