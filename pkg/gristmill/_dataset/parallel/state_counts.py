"""Counts the records that were delivered up to a state, by source.

Each kind of node has a function that splits its state: what its parents delivered, less
the elements that wait in the node.  Elements are computed again only if a state does
not determine what was delivered: those in a batch of packed rows, in a window or in
buckets, and all elements of a chain with filters or flat maps.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import ParentSpec, is_ours
from gristmill._dataset.nodes.batch import BatchIterDataset
from gristmill._dataset.nodes.block_map import BlockMapIterDataset
from gristmill._dataset.nodes.bucket import BucketIterDataset
from gristmill._dataset.nodes.concat_split import (
    NOTHING_LEFT,
    ConcatThenSplitIterDataset,
)
from gristmill._dataset.nodes.counted_mix import CountedMixIterDataset
from gristmill._dataset.nodes.elastic import ElasticIterator
from gristmill._dataset.nodes.epochs import EpochIterDataset, split_state
from gristmill._dataset.nodes.flat_map import FlatMapBase
from gristmill._dataset.nodes.interleave import PLACE_KEYS, InterleaveIterDataset
from gristmill._dataset.nodes.iterable_source import IterableSourceDataset
from gristmill._dataset.nodes.map import (
    FilterIterDataset,
    MapIterDataset,
    MapWithIndexIterDataset,
    RandomMapIterDataset,
)
from gristmill._dataset.nodes.mix import MixedIterDataset
from gristmill._dataset.nodes.packing import PackIterDataset
from gristmill._dataset.nodes.rebatch import RebatchIterDataset
from gristmill._dataset.nodes.repeat import (
    CacheIterDataset,
    LimitIterDataset,
    RepeatIterDataset,
)
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.nodes.window_shuffle import WindowShuffleIterDataset
from gristmill._dataset.nodes.zip import ZipIterDataset
from gristmill._dataset.parallel.index_counts import IndexCounter, is_sparse
from gristmill._dataset.parallel.output_counts import count_outputs
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill._dataset.parallel.source_list import (
    SourceList,
    Tally,
    counts_tokens,
    names_of_parts,
    nodes_of,
)
from gristmill._dataset.parallel.traced_run import TracedRun

# The place of a node in a chain: the classes of the nodes from the last one on, and the
# number of the part, stream or epoch where there are several.
Path = tuple[Any, ...]


class ReadingNeeded(Exception):
    """Elements must be computed again to count them; the message names the node."""


class CountedState(NamedTuple):
    """A state, or an index, with the records that were delivered before it."""

    position: Any
    tally: Tally


class StateCounter:
    """Counts the records that the iterator of a chain has delivered.

    It keeps its last counts, so that it counts only what was delivered since then.

    Args:
        sources: The sources of the chain.
    """

    def __init__(self, sources: SourceList) -> None:
        self._sources = sources
        self._counted: dict[Path, CountedState] = {}
        self._may_read = True
        self._indices = IndexCounter(sources)

    def count(
        self,
        dataset: Any,
        state: Any,
        may_read: bool = True,
        max_indices: int | None = None,
    ) -> Tally:
        """Return what an iterator with a state has delivered.

        Args:
            dataset: The last dataset of the chain.
            state: The state of its iterator.
            may_read: Whether elements may be computed again.
            max_indices: The most indices to map to records; None for no limit.

        Raises:
            ReadingNeeded: Elements must be computed again, but may not.
            TooManyIndices: More indices must be mapped than `max_indices`.
            TypeError: The records of a node's elements are not known.
            StateMismatch: It is not a state of this chain.
        """
        self._may_read = may_read
        self._indices = IndexCounter(self._sources, max_indices)
        return self._count(dataset, state, ())

    def _count(self, node: Any, state: Any, path: Path) -> Tally:
        path = (*path, type(node).__name__)
        if not isinstance(node, _HAS_PARTS) and any(
            isinstance(each, FlatMapBase) for each in nodes_of(node)
        ):
            # A record may be in several outputs, and in none.
            return self._count_by_running(node, state, path)
        for kinds, function in _COUNT_FUNCTIONS:
            if isinstance(node, kinds):
                return function(self, node, state, path)
        if isinstance(node, ParentSpec) and is_ours(node):
            # The states of the other nodes are their parent's.
            return self._count(node._parent, state, path)
        raise TypeError(
            f"The records of the elements of {node_line(node)} are not known, so they"
            " cannot be counted."
        )

    def _count_all(self, node: Any, path: Path) -> Tally:
        """Return the records of all elements of a node."""
        if isinstance(node, PrefetchIterDataset) and not is_sparse(node._parent):
            return self._indices.count(node._parent, 0, len(node._parent))
        if isinstance(node, CacheIterDataset):
            return self._count_all(node._parent, path)
        key = ("all", *path)
        if key not in self._counted:
            tally = self._run(node).add_all()
            self._counted[key] = CountedState(None, tally)
        return self._counted[key].tally

    def _run(self, node: Any, state: Any = None) -> TracedRun:
        """Return a run of a node's elements from a state on."""
        if not self._may_read:
            raise ReadingNeeded(node_line(node))
        return TracedRun(node, state, self._sources)

    def _count_outputs(self, node: Any, state: Any, outputs: int) -> Tally:
        """Return the records of the outputs after a state."""
        if not outputs:
            return Tally(len(self._sources))
        return self._run(node, state).add_outputs(outputs)

    def _count_by_running(self, node: Any, state: Any, path: Path) -> Tally:
        """Count all outputs before a state, except those that were counted before."""
        path = ("run", *path)
        start = self._counted.get(path)
        run = self._run(node, None if start is None else start.position)
        tally = run.add_until(state)
        if tally is None:  # It was set to an earlier state.
            start, tally = None, self._run(node).add_until(state)
        if tally is None:
            raise run.mismatch(state)
        if start is not None:
            tally.add(start.tally)
        if run.can_continue:
            self._counted[path] = CountedState(state, tally)
        return tally

    def _count_indices(self, node: Any, state: Any, path: Path) -> Tally:
        """Count the elements of a `MapDataset` up to an index."""
        end = int(state["next_index"])
        begin, tally = 0, Tally(len(self._sources))
        counted = self._counted.get(path)
        if counted is not None and counted.position <= end:
            begin = counted.position
            tally.add(counted.tally)
        if is_sparse(node._parent):
            tally.add(self._run(node).add_indices(node._parent, begin, end))
        else:
            tally.add(self._indices.count(node._parent, begin, end))
        self._counted[path] = CountedState(end, tally)
        return tally

    def _count_parent(self, node: Any, state: Any, path: Path) -> Tally:
        return self._count(node._parent, state, path)

    def _count_parent_field(self, node: Any, state: Any, path: Path) -> Tally:
        return self._count(node._parent, state["parent"], path)

    def _count_batches(self, node: Any, state: Any, path: Path) -> Tally:
        """Count batches.  At the end, the elements of an incomplete one may be lost."""
        if node._drop_remainder:
            count = count_outputs(node._parent, state)
            if count is None and not self._has_next(node, state):
                return self._count_by_running(node, state, path)
            if count is not None and (rest := count % node._batch_size):
                if [*state] != ["next_index"]:
                    return self._count_by_running(node, state, path)
                state = {"next_index": count - rest}
        return self._count(node._parent, state, path)

    def _has_next(self, node: Any, state: Any) -> bool:
        return self._run(node, state).has_next()

    def _count_mixed(self, node: Any, state: Any, path: Path) -> Tally:
        found, tally = state["parents"], Tally(len(self._sources))
        keys = names_of_parts(node) or range(len(node._parents))
        for number, (key, part) in enumerate(zip(keys, node._parents, strict=True)):
            if isinstance(found, Mapping) and found.get(key) is None:
                continue  # The part was not in the mixture.
            counts = self._count(part, found[key], (*path, number))
            tally.add(counts)
            source = self._sources.counted_source_of(part)
            if source is not None and counts_tokens(node):
                tokens = state["sources"][key]["tokens"]
                tally.tokens[source] += tokens - counts.tokens[source]
        return tally

    def _count_zip(self, node: Any, state: Any, path: Path) -> Tally:
        if not node._strict and not self._has_next(node, state):
            return self._count_by_running(node, state, path)
        tally = Tally(len(self._sources))
        for number, part in enumerate(node._parents):
            tally.add(self._count(part, state["parents"][number], (*path, number)))
        return tally

    def _count_streams(self, node: Any, state: Any, path: Path) -> Tally:
        states = state["iterators_in_use_states"]
        program = node._program
        if len(states) != program.streams:  # The state sets the number of streams.
            count = len(states)
            program = dataclasses.replace(program, numbers=range(count), parts=count)
        tally = Tally(len(self._sources))
        for stream, stream_state in enumerate(states):
            if program.is_start(stream_state):
                continue
            part = program.part(program.numbers[stream])
            part_path = (*path, len(states), stream)
            tally.add(self._count(part, stream_state, part_path))
        return tally

    def _count_interleaved(self, node: Any, state: Any, path: Path) -> Tally:
        places = zip(*(state[key] for key in PLACE_KEYS), strict=True)
        open_states = {
            number: part_state
            for number, part_state, _ in places
            if part_state is not None
        }
        future = {
            int(n): each for n, each in (state.get("future_states") or {}).items()
        }
        tally = Tally(len(self._sources))
        for number, part in enumerate(node.datasets):
            if not isinstance(part, IterDataset):
                part = part.to_iter_dataset()
            part_path = (*path, number)
            part_state = open_states.get(number, future.get(number))
            if part_state is not None:
                tally.add(self._count(part, part_state, part_path))
            elif number < state["next_index_in_datasets"] or number in future:
                tally.add(self._count_all(part, part_path))
        return tally

    def _count_epoch(self, node: Any, state: Any, path: Path) -> Tally:
        epoch, parent_state = split_state(state)
        chain = node._parent._in_epoch(epoch) if epoch else node._parent
        return self._count(chain, parent_state, (*path, epoch))

    def _count_repeated(self, node: Any, state: Any, path: Path) -> Tally:
        epoch, ended = state["epoch"], state["epoch"] == node._num_epochs
        tally = Tally(len(self._sources))
        if epoch:
            tally.add(self._count_all(node._parent, path), epoch)
        if not ended:
            tally.add(self._count(node._parent, state["parent"], path))
        return tally

    def _count_cached(self, node: Any, state: Any, path: Path) -> Tally:
        if not state["cache_filled"]:
            return self._count(node._parent, state["parent"], path)
        if isinstance(node._parent, PrefetchIterDataset) and not is_sparse(
            node._parent._parent
        ):
            start = {"next_index": state["position"]}
            return self._count(node._parent, start, path)
        return self._count_outputs(node, None, state["position"])

    def _count_packed(self, node: Any, state: Any, path: Path) -> Tally:
        """Count the parent's elements before the batch, and those in returned rows."""
        rows = state["next_row"]
        start = {**state, "next_row": 0, "counter": state["counter"] - rows}
        tally = self._count(node._parent, state["parent"], path)
        return tally.plus(self._count_outputs(node, start, rows))

    def _count_split(self, node: Any, state: Any, path: Path) -> Tally:
        rows = state["elements_from_buffer_after_checkpoint"]
        start = {**state, "elements_from_buffer_after_checkpoint": 0}
        parent_state = state["parent_state"]
        tally = self._count(node._parent, parent_state, path)
        key = node.span_feature
        begin = state["remainder_slices"].get(key, NOTHING_LEFT)[0]
        if begin > 0:  # This part of the next element was delivered before.
            run = self._run(node._parent, parent_state)
            tally = tally.plus(run.add_beginning(begin))
        return tally.plus(self._count_outputs(node, start, rows))

    def _count_rebatched(self, node: Any, state: Any, path: Path) -> Tally:
        if node._drop_remainder and not self._has_next(node, state):
            return self._count_by_running(node, state, path)
        rows, parent_state = state["batch_idx"], state["parent"]
        tally = self._count(node._parent, parent_state, path)
        if rows:
            tally = tally.plus(self._run(node._parent, parent_state).add_rows(rows))
        return tally

    def _count_window(self, node: Any, state: Any, path: Path) -> Tally:
        parent_state = state["parent_window_start_state"]
        tally = self._count(node._parent, parent_state, path)
        start = {**state, "pos_in_window": 0}
        return tally.plus(self._count_outputs(node, start, state["pos_in_window"]))

    def _count_block(self, node: Any, state: Any, path: Path) -> Tally:
        tally = self._count(node._parent, state["parent"], path)
        count = state["given_of_block"]
        return tally.plus(self._count_outputs(node._parent, state["parent"], count))

    def _count_buckets(self, node: Any, state: Any, path: Path) -> Tally:
        """Count the parent's elements, except those that wait."""
        if node._drop_remainder and not self._has_next(node, state):
            return self._count_by_running(node, state, path)
        tally = self._count(node._parent, state["parent"], path)
        for _, position, offsets in json.loads(state["waiting"]):
            run = self._run(node._parent, position)
            tally = tally.plus(run.add_outputs_at(offsets), -1)
        return tally

    def _count_elastic(self, node: Any, state: Any, path: Path) -> Tally:
        """Count what all hosts together have taken."""
        if not isinstance(state, Mapping) or "global_next_index" not in state:
            raise TypeError(
                f"The state of {node_line(node)} has the position of one host's"
                " datasets only, so what was delivered cannot be counted."
            )
        chain = node.global_dataset()
        if "stream" in state:
            return self._count(chain, state["stream"], path)
        return self._count(chain, {"next_index": state["global_next_index"]}, path)

    def _count_iterable(self, node: Any, state: Any, path: Path) -> Tally:
        tally = Tally(len(self._sources))
        tally.elements[self._sources.number_of(node)] += state["elements_read"]
        return tally


# Nodes whose parts have states of their own.
_HAS_PARTS = (
    CountedMixIterDataset,
    InterleaveIterDataset,
    MixedIterDataset,
    ProcessPrefetchIterDataset,
    ZipIterDataset,
)
_CountFunction = Callable[[StateCounter, Any, Any, Path], Tally]
# The first kind that fits counts.
_COUNT_FUNCTIONS: Sequence[tuple[Any, _CountFunction]] = (
    (PrefetchIterDataset, StateCounter._count_indices),
    (FilterIterDataset, StateCounter._count_by_running),
    (
        (LimitIterDataset, MapWithIndexIterDataset, RandomMapIterDataset),
        StateCounter._count_parent_field,
    ),
    (BatchIterDataset, StateCounter._count_batches),
    (BlockMapIterDataset, StateCounter._count_block),
    (MapIterDataset, StateCounter._count_parent),
    ((MixedIterDataset, CountedMixIterDataset), StateCounter._count_mixed),
    (ZipIterDataset, StateCounter._count_zip),
    (ProcessPrefetchIterDataset, StateCounter._count_streams),
    (InterleaveIterDataset, StateCounter._count_interleaved),
    (EpochIterDataset, StateCounter._count_epoch),
    (RepeatIterDataset, StateCounter._count_repeated),
    (CacheIterDataset, StateCounter._count_cached),
    (PackIterDataset, StateCounter._count_packed),
    (ConcatThenSplitIterDataset, StateCounter._count_split),
    (RebatchIterDataset, StateCounter._count_rebatched),
    (WindowShuffleIterDataset, StateCounter._count_window),
    (BucketIterDataset, StateCounter._count_buckets),
    (ElasticIterator, StateCounter._count_elastic),
    (IterableSourceDataset, StateCounter._count_iterable),
)
