"""Divides the datasets of an interleaving among hosts, like Grain's main branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import with_parents
from gristmill._dataset.nodes.interleave import (
    InterleaveDatasetIterator,
    InterleaveIterDataset,
)
from gristmill._dataset.nodes.parquet import ParquetIterDataset
from gristmill._dataset.nodes.slicing import slice_chain
from gristmill.sharding import ShardOptions


def chain_to_divide(ds: Any) -> IterDataset[Any] | None:
    """Return a chain whose datasets can be divided among hosts, or None."""
    if isinstance(ds, InterleaveIterDataset):
        return ds
    if isinstance(ds, ParquetIterDataset):
        return ds.as_interleaving()
    if not isinstance(ds, IterDataset) or len(ds._parents) != 1:
        return None
    parent = chain_to_divide(ds._parents[0])
    return None if parent is None else with_parents(ds, [parent])


class HostShare(NamedTuple):
    """One host's share of a global batch.

    Attributes:
        host: The number of this host, from 0.
        hosts: The number of hosts.
        batch_size: The number of elements for each host.
    """

    host: int
    hosts: int
    batch_size: int


def share_of(global_batch_size: int, shard: ShardOptions) -> HostShare:
    """Return the share of a global batch for the host that `shard` describes.

    Raises:
        ValueError: The batch cannot be divided equally among the hosts.
    """
    host, hosts = int(shard.shard_index), int(shard.shard_count)
    batch_size, remainder = divmod(global_batch_size, hosts)
    if remainder:
        raise ValueError(
            f"Global batch size {global_batch_size} is not divisible by shard count"
            f" {hosts}."
        )
    return HostShare(host, hosts, batch_size)


class ElasticShardsDatasetIterator(DatasetIterator[Any]):
    """Iterates over the datasets that are this host's share.

    Args:
        chain: A chain that `chain_to_divide` returned.
        global_batch_size: See `ElasticIterator`.
        shard_options: See `ElasticIterator`.
        open_stream: Returns an iterator over a stream that all hosts run.
    """

    def __init__(
        self,
        chain: IterDataset[Any],
        global_batch_size: int,
        shard_options: ShardOptions,
        open_stream: Callable[[], DatasetIterator[Any]],
    ) -> None:
        super().__init__()
        self._chain_to_divide = chain
        self._global_batch_size = global_batch_size
        self._shard_options = shard_options
        self._open_stream = open_stream
        # Iterates over the share; or over the whole stream if the state that was set
        # has no shards.  None until it is needed.
        self._batches: DatasetIterator[Any] | None = None

    @property
    def shard_options(self) -> ShardOptions:
        """The number of this host, and the number of hosts."""
        return self._shard_options

    def __next__(self) -> Any:
        return next(self._get_batches())

    def get_state(self) -> Any:
        """Return the position of the iterator over the share."""
        return self._get_batches().get_state()

    def set_state(self, state: Any) -> None:
        """See `ElasticIterator.set_state`. Nothing changes if it raises."""
        # In states without shards, each host ran the stream.
        if isinstance(state, Mapping) and state.keys() == {
            "global_next_index",
            "stream",
        }:
            batches = self._open_stream()
        else:
            batches = self._new_batches()
        self._replace(batches, lambda: batches.set_state(state))

    def get_shard_states(self) -> dict[int, Any]:
        """See `ElasticIterator.get_shard_states`."""
        host, hosts, _ = share_of(self._global_batch_size, self._shard_options)
        states_of_shards = _interleaving(self._get_batches()).get_shard_states()
        return {host + hosts * i: state for i, state in enumerate(states_of_shards)}

    def set_shard_states(self, shard_states: Mapping[Any, Any]) -> None:
        """See `ElasticIterator.set_shard_states`."""
        by_number = sorted((int(n), state) for n, state in shard_states.items())
        host, hosts, _ = share_of(self._global_batch_size, self._shard_options)
        numbers = [number for number, _ in by_number]
        if numbers != [host + hosts * i for i in range(len(numbers))]:
            problem = f"has datasets {numbers}, expected every {hosts}th from {host} on"
            raise states.mismatch(self, problem)
        batches = self._new_batches()
        shards = [state for _, state in by_number]
        self._replace(batches, lambda: _interleaving(batches).set_shard_states(shards))

    def start_prefetch(self) -> None:
        self._get_batches().start_prefetch()

    def _get_batches(self) -> DatasetIterator[Any]:
        self._assert_not_closed()
        if self._batches is None:
            self._batches = self._new_batches()
        return self._batches

    def _new_batches(self) -> DatasetIterator[Any]:
        self._assert_not_closed()
        host, hosts, batch_size = share_of(self._global_batch_size, self._shard_options)
        own = slice_chain(self._chain_to_divide, host, hosts, sequential=False)
        # 0: return single elements.
        return iter(own.batch(batch_size) if batch_size else own)

    def _replace(
        self, batches: DatasetIterator[Any], set_position: Callable[[], None]
    ) -> None:
        """Switch to another iterator, unless setting its position fails."""
        try:
            set_position()
        except BaseException:
            batches.close()
            raise
        self._release()
        self._batches = batches

    def _release(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()


def _interleaving(iterator: DatasetIterator[Any]) -> InterleaveDatasetIterator[Any]:
    """Return the iterator of a chain that takes from several datasets in turn."""
    node = iterator
    while not isinstance(node, InterleaveDatasetIterator):
        if len(node._parents) != 1:
            raise NotImplementedError(
                f"{iterator} must have one parent, got {len(node._parents)} at {node}."
                " Pass the parent to super().__init__() of your DatasetIterator."
            )
        node = node._parent
    return node
