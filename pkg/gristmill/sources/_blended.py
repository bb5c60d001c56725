"""Implementation of sources.BlendedDataSource: Megatron's BlendedDataset."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any, Self, SupportsIndex

import numpy as np

from gristmill import _core
from gristmill._base.argument_checks import check_finite, check_instance, check_integer
from gristmill._base.object_repr import FileSource, value_text
from gristmill.errors import CorruptRecord
from gristmill.sources._gpt import GPTDataSource, Sample
from gristmill.sources._gpt_order import normalize
from gristmill.sources._row_source import (
    ITER_BLOCK,
    Documents,
    array_place,
    check_row_keys,
    warn_if_not_saved,
)

__all__ = ["BlendedDataSource"]

SAMPLE_BYTES = 10  # In the index, for each sample.
MAX_SAMPLES = 2**56  # More than fit any memory; their bytes fit 64 bits.


class BlendedDataSource(FileSource):
    """Serve the samples of several `GPTDataSource`, as Megatron's `BlendedDataset`.

    Args:
        sources: The sources to blend, at least one.
        weights: The shares of the samples, positive and one for each source.  Without
            `size`, the numbers of samples.  None for the lengths of the sources.
        size: The number of samples.  None for the sum of `weights`.
        index_dir: The folder for the index, created if it is missing.  None for the
            folder of the first data set, or if that is not writable, for that of the
            environment variable ``GRISTMILL_CACHE_DIR``.

    Record ``k`` is a sample, with the number of its source as "dataset_id", int16.

    The index takes 10 bytes for each sample, in a file that all processes map; one of
    less than 1 MiB is not saved.

    Raises:
        TypeError: An argument has another type.
        ValueError: `sources` is empty, or has another length than `weights`; a number
            is out of range; or a source has fewer samples than the blend takes from it.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "part-0.npy")
        >>> np.arange(100, dtype=np.uint16).tofile(path)
        >>> documents = gristmill.sources.TokenArrayDataSource(path, "uint16", eos_id=0)
        >>> samples = gristmill.sources.GPTDataSource(documents, 9, seed=1)
        >>> blend = gristmill.sources.BlendedDataSource([samples, samples], [2, 1], 6)
        >>> [int(sample["dataset_id"]) for sample in blend]
        [0, 1, 0, 0, 1, 0]
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    def __init__(
        self,
        sources: Sequence[GPTDataSource],
        weights: Sequence[float] | None = None,
        size: SupportsIndex | None = None,
        *,
        index_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._sources = list(sources)
        if not self._sources:
            raise ValueError("sources must have at least one source, got none.")
        for source in self._sources:
            check_instance("sources", source, GPTDataSource, "only GPTDataSources")
        if weights is None:
            weights = [len(source) for source in self._sources]
        _check_weights(weights, len(self._sources), whole=size is None)
        if size is not None:
            _check_count("size", size)
        self._weights: list[float] = list(weights)
        self._size = sum(map(int, weights)) if size is None else operator.index(size)
        if self._size > MAX_SAMPLES:
            raise ValueError(
                f"a blend must have at most 2**56 samples, got {self._size}."
            )
        self._is_exhaustive = size is None
        self._index_dir = None if index_dir is None else os.fspath(index_dir)
        self._blend: _core.Blend | None = self._open()
        for number, count in enumerate(self._blend.counts):
            if count > len(self._sources[number]):
                raise ValueError(
                    f"source {number} must have at least the {count} samples that the"
                    f" blend takes, got {len(self._sources[number])}. Increase its"
                    " num_samples."
                )

    @classmethod
    def build(
        cls,
        sources: Sequence[Documents],
        weights: Sequence[float] | None,
        num_samples: int | None,
        sequence_length: int,
        *,
        surplus: float = 0.005,
        index_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """Blend samples of token sources as Megatron's builder does for its config.

        Args:
            sources: The documents of each data set.
            weights: The shares of the samples.  None for one epoch of each data set.
            num_samples: The samples that are needed, at least.  None for all of one
                epoch, without weights.
            sequence_length: Tokens of a sample.
            surplus: The share of additional samples of each source; Megatron's
                `mid_level_dataset_surplus`.
            index_dir: See `GPTDataSource`.
            options: Other arguments of `GPTDataSource`, such as `seed` and `split`.

        Returns:
            The blend.

        Raises:
            ValueError: There are weights, but no `num_samples`; `surplus` is negative;
                or as `__init__`.
        """
        if num_samples is not None:
            _check_count("num_samples", num_samples)
        check_finite("surplus", surplus)
        if surplus < 0:
            raise ValueError(f"surplus must be >= 0, got {surplus}.")
        counts: list[int | None] = [None] * len(sources)
        if weights is not None:
            if num_samples is None:
                raise ValueError("num_samples must be an int, because weights are set.")
            _check_weights(weights, len(sources), whole=False)
            shares = normalize(weights)
            needed = [math.ceil(num_samples * share) for share in shares]
            counts = [math.ceil(count * (1 + surplus)) for count in needed]
            weights, num_samples = shares, sum(needed)
        parts = [
            GPTDataSource(
                source,
                sequence_length,
                num_samples=count,
                index_dir=index_dir,
                **options,
            )
            for source, count in zip(sources, counts, strict=True)
        ]
        if weights is None and num_samples is not None:
            num_samples = min(num_samples, sum(map(len, parts)))
        return cls(parts, weights, num_samples, index_dir=index_dir)

    def _open(self) -> _core.Blend:
        """Load or build the index."""
        source = self._sources[0].source
        index_bytes = SAMPLE_BYTES * self._size
        text = repr(
            (type(self).__name__, self._is_exhaustive, self._weights, self._size)
        )
        place = array_place(text, index_bytes, source, self._index_dir)
        if self._is_exhaustive:
            blend = _core.Blend.exhaustive([int(w) for w in self._weights], place)
        else:
            blend = _core.Blend.weighted(normalize(self._weights), self._size, place)
        warn_if_not_saved(blend.has_index_file, index_bytes, source)
        return blend

    @property
    def sources(self) -> list[GPTDataSource]:
        """The blended sources."""
        return [*self._sources]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, record_key: SupportsIndex) -> Sample:
        return self.__getitems__([record_key])[0]

    def __getitems__(self, record_keys: Sequence[SupportsIndex]) -> list[Sample]:
        keys = check_row_keys(record_keys, self._size, self)
        if self._blend is None:  # In another process.
            self._blend = self._open()
        parts, numbers = self._blend.find(keys)
        samples: list[Sample] = [{}] * len(keys)
        for part in np.unique(parts).tolist():
            if part >= len(self._sources):
                raise CorruptRecord(
                    f"{self._blend.index_path}: the index is damaged. Delete it."
                )
            places = np.flatnonzero(parts == part)
            found = self._sources[part].__getitems__(numbers[places].tolist())
            for place, sample in zip(places.tolist(), found, strict=True):
                samples[place] = {"dataset_id": np.array(part, np.int16), **sample}
        return samples

    def __iter__(self) -> Iterator[Sample]:
        for first in range(0, self._size, ITER_BLOCK):
            last = min(first + ITER_BLOCK, self._size)
            yield from self.__getitems__(range(first, last))

    def _text_of(self, sources: list[str]) -> str:
        size = None if self._is_exhaustive else self._size
        return (
            f"{type(self).__name__}([{', '.join(sources)}],"
            f" weights={value_text(self._weights)}, size={size})"
        )

    def __repr__(self) -> str:
        return self._text_of([repr(source) for source in self._sources])

    def _text_with_paths(self) -> str:
        return self._text_of([str(source) for source in self._sources])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_blend": None}


def _check_weights(weights: Sequence[float], num_sources: int, *, whole: bool) -> None:
    if len(weights) != num_sources:
        raise ValueError(
            "weights must have one number for each source, got"
            f" {len(weights)} for {num_sources} sources."
        )
    for weight in weights:
        check_finite("weights", weight)
        if weight <= 0 or (whole and weight != int(weight)):
            expected = "positive whole numbers" if whole else "positive"
            raise ValueError(f"weights must be {expected}, got {weight}.")


def _check_count(name: str, count: SupportsIndex) -> None:
    check_integer(name, count)
    if operator.index(count) < 0:
        raise ValueError(f"{name} must be >= 0, got {count}.")
