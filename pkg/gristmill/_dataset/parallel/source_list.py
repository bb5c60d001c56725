"""Lists the sources of a chain, with their names and the lengths of their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._base.argument_checks import kind
from gristmill._base.object_repr import value_text
from gristmill._base.source_counts import SourceCount
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import is_ours
from gristmill._dataset.nodes.counted_mix import CountedMixIterDataset
from gristmill._dataset.nodes.elastic import ElasticIterator
from gristmill._dataset.nodes.flat_map import FlatMapBase
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.iterable_source import IterableSourceDataset
from gristmill._dataset.nodes.mix import MixedIterDataset, MixedMapDataset
from gristmill._dataset.nodes.plan_packing import PackMapDataset
from gristmill._dataset.nodes.planned_mix import PlannedMixMapDataset
from gristmill._dataset.nodes.zip import ZipBase
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill.sources import known_length

# The number of tokens of each record of a source, by the source's name.
LengthsByName = Mapping[str, Any]
Lengths = npt.NDArray[np.integer[Any]] | None


def is_source(dataset: Any) -> bool:
    """Return whether a dataset's elements are the records of a source.

    A user's dataset counts as a source.
    """
    return not dataset._parents or not is_ours(dataset)


def shared_part(source: Any) -> Any:
    """Return the object that all copies and slices of a source share."""
    for name in ("_reader", "_range", "_iterable"):
        if hasattr(source, name):
            return getattr(source, name)
    return source


def parts_of(dataset: Any) -> list[Any]:
    """Return the datasets whose elements a dataset returns, in their order.

    Raises:
        TypeError: The datasets of an interleaving are not known before iterating.
    """
    if isinstance(dataset, ProcessPrefetchIterDataset):
        return [dataset.in_workers]
    if isinstance(dataset, ElasticIterator):
        return [dataset._ds]
    if isinstance(dataset, InterleaveIterDataset):
        if isinstance(dataset.datasets, MapDataset):
            raise TypeError(
                f"{node_line(dataset)} makes its datasets when they are needed, so the"
                " numbers of their sources are not known. Pass a list of datasets."
            )
        return list(dataset.datasets)
    return [] if is_source(dataset) else list(dataset._parents)


def names_of_parts(dataset: Any) -> Sequence[str] | None:
    """Return the names of the parts of a mixture, or None if it has no names."""
    if isinstance(dataset, (MixedMapDataset, MixedIterDataset)):
        return dataset._names
    if isinstance(dataset, (PlannedMixMapDataset, CountedMixIterDataset)):
        return dataset._rule.names
    return None


def counts_tokens(dataset: Any) -> bool:
    """Return whether a dataset is a mixture whose state has numbers of tokens."""
    return isinstance(dataset, CountedMixIterDataset) and dataset._rule.counts_tokens


def nodes_of(dataset: Any) -> Iterator[Any]:
    """Yield the nodes of a chain, those in workers and interleaved ones included."""
    nodes = [dataset]
    for node in nodes:
        yield node
        nodes += parts_of(node)


def _is_leaf(dataset: Any) -> bool:
    """Return whether a dataset is a source, and not a part that workers compute."""
    return is_source(dataset) and not parts_of(dataset)


def _has_one_record(dataset: Any) -> bool:
    """Return whether each element is made of one record, all of the same source."""
    nodes = list(nodes_of(dataset))
    joins = any(
        node._KIND == "batch" or isinstance(node, (FlatMapBase, ZipBase))
        for node in nodes
    )
    return not joins and len({id(shared_part(n)) for n in nodes if _is_leaf(n)}) == 1


class Tally:
    """Counts records and tokens by the number of their source.

    Attributes:
        elements: The number of records of each source.
        tokens: The number of tokens of each source, if it is known.
    """

    __slots__ = ("elements", "tokens")

    def __init__(self, sources: int) -> None:
        self.elements = [0] * sources
        self.tokens = [0] * sources

    def add(self, other: Tally, times: int = 1) -> Tally:
        """Add another tally several times, and return this one."""
        pairs = zip(self.elements, other.elements, strict=True)
        self.elements = [own + times * count for own, count in pairs]
        pairs = zip(self.tokens, other.tokens, strict=True)
        self.tokens = [own + times * count for own, count in pairs]
        return self

    def plus(self, other: Tally, times: int = 1) -> Tally:
        """Return a new tally: this one, and another one several times."""
        return Tally(len(self.elements)).add(self).add(other, times)


class SourceList:
    """The sources of a chain, numbered in the order of its text.

    Args:
        dataset: The last dataset of the chain.
        lengths: The lengths of records that their source does not have.

    Attributes:
        numbers: The number of each source, by the id of its `shared_part`.
        names: The name of each source, in the order of their numbers.

    Raises:
        TypeError: The records of a part of the chain have no known source.
        ValueError: `lengths` has another name, or does not fit its source.
    """

    def __init__(self, dataset: Any, lengths: LengthsByName | None = None) -> None:
        self.numbers: dict[int, int] = {}
        self._datasets: list[Any] = []
        # The names of the parts of mixtures that each source is in.
        self._labels: list[dict[str, None]] = []
        # True for a source that is read only by rows whose plan has its lengths.
        self._is_packed: list[bool] = []
        # True for a source that is read only by mixtures that count its tokens.
        self._is_counted: list[bool] = []
        # The lengths of the records of each source; None if they are not known.
        self._lengths: dict[int, Lengths] = {}
        # Those that mixtures have, by the number of the source.
        self._lengths_in_mixtures: dict[int, Lengths] = {}
        self._visit(dataset, (), False, False)
        self.names = self._choose_names()
        self._totals: dict[int, int] = {}
        self._given_lengths = dict(lengths or {})
        for name in self._given_lengths:
            if name not in self.names:
                raise ValueError(
                    "lengths must have names of sources,"
                    f" {', '.join(map(repr, self.names))}, got {name!r}."
                )
            self._lengths_of(self.names.index(name))

    def __len__(self) -> int:
        return len(self._datasets)

    def number_of(self, dataset: Any) -> int:
        """Return the number of a source."""
        return self.numbers[id(shared_part(dataset))]

    def record_count(self, number: int) -> int | None:
        """Return the number of records of a source, or None if it is not known."""
        dataset = self._datasets[number]
        return known_length(dataset) if isinstance(dataset, MapDataset) else None

    def has_lengths(self, number: int) -> bool:
        """Return whether the lengths of a source's records are known."""
        return self._lengths_of(number) is not None

    def counted_source_of(self, part: Any) -> int | None:
        """Return the source of a part of a mixture that counts its tokens, or None.

        It is None also if tokens are counted by lengths.
        """
        numbers = {self.number_of(node) for node in nodes_of(part) if _is_leaf(node)}
        if len(numbers) > 1:
            return None
        (number,) = numbers
        by_lengths = self.has_lengths(number) or self._is_packed[number]
        return number if self._is_counted[number] and not by_lengths else None

    def tokens_of(self, number: int, keys: Any) -> int:
        """Return the tokens of some records: an array of keys, or a slice."""
        lengths = self._lengths_of(number)
        return 0 if lengths is None else int(lengths[keys].sum(dtype=np.int64))

    def all_tokens_of(self, number: int) -> int:
        """Return the tokens of all records of a source."""
        if number not in self._totals:
            self._totals[number] = self.tokens_of(number, slice(None))
        return self._totals[number]

    def length_of(self, number: int, key: int) -> int:
        """Return the tokens of a record, or -1 if that is not known."""
        lengths = self._lengths_of(number)
        return -1 if lengths is None else int(lengths[key])

    def counts_of(self, tally: Tally) -> dict[str, SourceCount]:
        """Return the numbers of a tally, by the names of the sources."""
        counts = {}
        for number, name in enumerate(self.names):
            elements, records = tally.elements[number], self.record_count(number)
            knows_tokens = self._is_packed[number] or self._is_counted[number]
            knows_tokens |= self.has_lengths(number)
            tokens = tally.tokens[number] if knows_tokens else None
            epochs = elements / records if records else None
            counts[name] = SourceCount(elements, tokens, epochs)
        return counts

    def _lengths_of(self, number: int) -> Lengths:
        if number not in self._lengths:
            self._lengths[number] = self._find_lengths(number)
        return self._lengths[number]

    def _visit(
        self, dataset: Any, labels: tuple[str, ...], is_packed: bool, is_counted: bool
    ) -> None:
        parts = parts_of(dataset)
        if _is_leaf(dataset):
            number = self._add(dataset, labels)
            self._is_packed[number] &= is_packed
            self._is_counted[number] &= is_counted
        is_packed |= isinstance(dataset, PackMapDataset)
        names = names_of_parts(dataset)
        counts = counts_tokens(dataset)
        for number, part in enumerate(parts):
            label = () if names is None else (str(names[number]),)
            is_counted_here = is_counted or (counts and _has_one_record(part))
            self._visit(part, labels + label, is_packed, is_counted_here)
        if isinstance(dataset, PlannedMixMapDataset):
            for base, lengths in dataset.lengths_of_bases():
                source = self.numbers.get(id(shared_part(base)))
                if source is not None and self.record_count(source) == len(lengths):
                    self._lengths_in_mixtures[source] = lengths

    def _add(self, dataset: Any, labels: tuple[str, ...]) -> int:
        """Add a source, unless it was added before, and return its number."""
        if not isinstance(dataset, (MapDataset, IterableSourceDataset)):
            raise TypeError(
                f"The records of {node_line(dataset)} are not known by index, so they"
                " cannot be counted from a state. Read them from a MapDataset."
            )
        number = self.numbers.setdefault(id(shared_part(dataset)), len(self._datasets))
        if number == len(self._datasets):
            self._datasets.append(dataset)
            self._labels.append({})
            self._is_packed.append(True)
            self._is_counted.append(True)
        if labels:
            self._labels[number]["/".join(labels)] = None
        return number

    def _choose_names(self) -> list[str]:
        """Return a different name for each source."""
        names = [
            self._choose_name(number, dataset)
            for number, dataset in enumerate(self._datasets)
        ]
        return [
            f"{name} ({number})" if names.count(name) > 1 else name
            for number, name in enumerate(names)
        ]

    def _choose_name(self, number: int, dataset: Any) -> str:
        source = getattr(dataset, "_source", dataset)
        own_name = getattr(source, "name", None)
        labels = list(self._labels[number])
        text = own_name if isinstance(own_name, str) else value_text(source)
        if len(labels) != 1:
            return text
        is_alone = sum(labels[0] in each for each in self._labels) == 1
        return labels[0] if is_alone else f"{labels[0]}/{text}"

    def _find_lengths(self, number: int) -> Lengths:
        name, dataset = self.names[number], self._datasets[number]
        get = getattr(getattr(dataset, "_source", dataset), "lengths", None)
        if name in self._given_lengths:
            given = self._check_lengths(number, self._given_lengths[name])
            if given is not None and given.min(initial=0) < 0:
                record = int(np.argmax(given < 0))
                raise ValueError(
                    f"The lengths of {name!r} must be at least 0, got {given[record]}"
                    f" for record {record}."
                )
            return given
        if number in self._lengths_in_mixtures:
            return self._lengths_in_mixtures[number]
        return self._check_lengths(number, get()) if callable(get) else None

    def _check_lengths(self, number: int, lengths: Any) -> Lengths:
        array, count = np.asarray(lengths), self.record_count(number)
        if count is None:
            raise ValueError(
                f"The lengths of {self.names[number]!r} cannot be used, because the"
                " source has no length. Define its __len__, or leave the lengths out."
            )
        if array.dtype.kind not in "iu" or array.shape != (count,):
            raise ValueError(
                f"The lengths of {self.names[number]!r} must be {count} ints, one for"
                f" each record, got {kind(lengths)} of dtype {array.dtype} and shape"
                f" {array.shape}."
            )
        return array
