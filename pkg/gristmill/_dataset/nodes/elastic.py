"""Batches for one of several hosts. Any number of hosts can resume from a state.

There is one stream of elements, which does not depend on the number of hosts.  Global
batch b has the elements ``[b * G, (b + 1) * G)``, and host h of H gets every H-th of
them, from h on.  If elements have indices, a host reads only its own.  Otherwise
(filters, packing, any `IterDataset`) each host reads the whole stream.

Interleaved datasets are the exception: like in Grain, they are divided among hosts.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, Self

from gristmill import batching
from gristmill._base.argument_checks import check_integer, check_options
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import CheckedIterator, DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import Dataset, chain_of, check_parents
from gristmill._dataset.model.observer import treat_as_part
from gristmill._dataset.model.states import copy_state
from gristmill._dataset.nodes.elastic_shards import (
    ElasticShardsDatasetIterator,
    HostShare,
    chain_to_divide,
    share_of,
)
from gristmill._dataset.nodes.missing_states import (
    check_no_missing_state,
    may_lack_state,
)
from gristmill._hot import cancellation
from gristmill._hot.error_location import as_failure
from gristmill.checkpoint import Checkpointable
from gristmill.options import MultiprocessingOptions, ReadOptions
from gristmill.sharding import ShardOptions


class ElasticIterator(Checkpointable, IterDataset[Any]):
    """Batches of one host's share of a dataset.

    A state that one host saved fits all hosts, for any number of hosts and any batch
    size: no element is lost or repeated.  Each ``iter(ds)`` returns the same iterator.

    The datasets of an `InterleaveIterDataset`, or the files of a `ParquetIterDataset`,
    are divided among hosts instead: host h reads every H-th.  Steps after it may be
    anything except zips and mixtures.  A state fits only the host that saved it.  To
    change the number of hosts, save the `get_shard_states` of all hosts, and set the
    states of its datasets on each new host.  `checkpoint.CheckpointHandler` does both.

    Args:
        ds: The dataset, neither batched nor sharded.  If it is an `IterDataset`, or
            drops elements, every host reads all of it, unless it is divided among
            hosts.
        global_batch_size: The number of elements of a step on all hosts together,
            ``G``.  If datasets are divided among hosts, 0 returns single elements.
        shard_options: The number of this host, and the number of hosts, ``H``.
        read_options: For `to_iter_dataset`.
        multiprocessing_options: For `mp_prefetch`; None uses no workers.  With workers,
            every host reads all of an `IterDataset`, and the order depends on the
            number of workers.

    Batches have ``G / H`` elements.  An incomplete last batch is dropped, unless
    datasets are divided among hosts.

    Attributes:
        shard_options: The number of this host, and the number of hosts.

    Raises:
        ValueError: At the first element: G is not a multiple of H.
        StateMismatch: A state is from another kind of dataset.

    Example:
        >>> ds = gristmill.MapDataset.range(8)
        >>> share = gristmill.sharding.ShardOptions(shard_index=1, shard_count=2)
        >>> elastic = gristmill.experimental.ElasticIterator(ds, 4, share)
        >>> next(elastic).tolist(), elastic.get_state()
        ([1, 3], {'global_next_index': 4})
    """

    def __init__(
        self,
        ds: MapDataset[Any] | IterDataset[Any],
        global_batch_size: int,
        shard_options: ShardOptions,
        *,
        read_options: ReadOptions = ReadOptions(),  # noqa: B008 - Grain's signature.
        multiprocessing_options: MultiprocessingOptions | None = None,
    ) -> None:
        super().__init__()
        check_parents(self, [ds], Dataset)
        check_integer("global_batch_size", global_batch_size)
        chain = None if multiprocessing_options is not None else chain_to_divide(ds)
        if global_batch_size < (1 if chain is None else 0):
            raise ValueError(
                f"global_batch_size must be at least 1, got {global_batch_size}."
            )
        example = "ShardOptions(shard_index=0, shard_count=1)"
        check_options("shard_options", shard_options, ShardOptions, example)
        check_options("read_options", read_options, ReadOptions, "ReadOptions()")
        if multiprocessing_options is not None:
            check_options(
                "multiprocessing_options",
                multiprocessing_options,
                MultiprocessingOptions,
                "MultiprocessingOptions(num_workers=2)",
            )
        self._ds: Any = ds
        # The chain with datasets to divide among hosts; None if each host reads all.
        self._chain_to_divide: IterDataset[Any] | None = chain
        self._global_batch_size = int(global_batch_size)
        self.shard_options = shard_options
        self._read_options = read_options
        self._multiprocessing_options = multiprocessing_options

    def __iter__(self) -> DatasetIterator[Any]:
        return self._iterator

    def __next__(self) -> Any:
        return next(self._iterator)

    def get_state(self) -> Any:
        """Return the position in the stream, or in this host's datasets.

        Returns:
            A dict or bytes, as the wrapped iterator returns it.

        Raises:
            TypeError: A part of the chain has no state.
        """
        state = self._iterator.get_state()
        check_no_missing_state(state)
        return state

    def set_state(self, state: Any) -> None:
        """Continue at a position. This may also be called after `close`.

        Args:
            state: The result of `get_state`.
        """
        self._get_open_iterator().set_state(state)

    def get_shard_states(self) -> dict[int, Any]:
        """Return the position of each dataset of this host, by its number.

        Returns:
            ``{"exhausted": 0 or 1, "state": its iterator's state}`` of each.

        Raises:
            NotImplementedError: Datasets are not divided among hosts.
        """
        return self._sharded_iterator("get_shard_states").get_shard_states()

    def set_shard_states(self, shard_states: Mapping[Any, Any]) -> None:
        """Continue at positions of this host's datasets.

        Args:
            shard_states: Results of `get_shard_states` for these datasets, with numbers
                or their text as keys.

        Raises:
            NotImplementedError: Datasets are not divided among hosts.
            StateMismatch: They are not the positions of this host's datasets.
        """
        self._get_open_iterator()
        self._sharded_iterator("set_shard_states").set_shard_states(shard_states)

    def start_prefetch(self) -> None:
        """Start working in the background, if a part of the chain supports it."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """Stop threads and workers."""
        self._iterator.close()

    @property
    def _fits_all_processes(self) -> bool:
        return self._chain_to_divide is None

    @property
    def base_iterator(self) -> DatasetIterator[Any]:
        """The underlying iterator."""
        return self._iterator

    def _sharded_iterator(self, function: str) -> ElasticShardsDatasetIterator:
        """Return the iterator, or raise NotImplementedError if it has no shards."""
        if not isinstance(self._iterator, ElasticShardsDatasetIterator):
            raise NotImplementedError(
                f"{function} is only supported for IterDataset-based ElasticIterator"
                " with an InterleaveIterDataset or several Parquet files. Otherwise the"
                " state of one host fits all hosts."
            )
        return self._iterator

    def _get_open_iterator(self) -> DatasetIterator[Any]:
        """Return the iterator, or a new one if it was closed."""
        if self._iterator._closed:
            del self._iterator
        return self._iterator

    @functools.cached_property
    def _iterator(self) -> DatasetIterator[Any]:
        """The iterator; `_get_open_iterator` replaces it after `close`."""
        if self._chain_to_divide is not None:
            return ElasticShardsDatasetIterator(
                self._chain_to_divide,
                self._global_batch_size,
                self.shard_options,
                lambda: ElasticStreamDatasetIterator(self),
            )
        nodes = chain_of(self._ds)
        dense = isinstance(self._ds, MapDataset) and not any(n._SPARSE for n in nodes)
        if dense:  # There is an element at each index.
            return ElasticMapDatasetIterator(self)
        return ElasticStreamDatasetIterator(self)

    @property
    def _may_lack_state(self) -> bool:  # type: ignore[override]
        return may_lack_state(self._ds)

    def _in_epoch(self, epoch: int) -> Self:
        copied = copy.copy(self)
        copied.__dict__.pop("_iterator", None)
        copied._ds = self._ds._in_epoch(epoch)
        if self._chain_to_divide is not None:
            copied._chain_to_divide = self._chain_to_divide._in_epoch(epoch)
        return copied

    def global_dataset(self) -> IterDataset[Any]:
        """Return the elements of all hosts, in the order of steps."""
        return self._with_workers(self._ds)

    def _host_share(self) -> HostShare:
        """Return this host's share of a global batch."""
        return share_of(self._global_batch_size, self.shard_options)

    def _with_workers(self, ds: Any) -> IterDataset[Any]:
        """Return a dataset with the read options and workers of this one."""
        if isinstance(ds, MapDataset):
            ds = ds.to_iter_dataset(self._read_options)
        if self._multiprocessing_options is not None:
            ds = ds.mp_prefetch(self._multiprocessing_options)
        return ds  # type: ignore[no-any-return]


class ElasticMapDatasetIterator(CheckedIterator[Any]):
    """Iterates over a host's share of a dataset of indices."""

    _STATE = states.fields(global_next_index=states.count)

    def __init__(self, node: ElasticIterator) -> None:
        super().__init__()
        self._node = node
        self._next_index = 0
        # Iterates over the dataset from `_next_index` on; None until it is needed.
        self._batches: DatasetIterator[Any] | None = None

    def __next__(self) -> Any:
        batch = next(self._get_batches())
        self._next_index += self._node._global_batch_size
        return batch

    @property
    def _fits_all_processes(self) -> bool:
        return True

    def get_state(self) -> Any:
        """Return the number of elements consumed by all hosts together."""
        return {"global_next_index": self._next_index}

    def _go_to(self, state: Any) -> None:
        self._release()
        self._next_index = state["global_next_index"]

    def start_prefetch(self) -> None:
        self._get_batches().start_prefetch()

    def _get_batches(self) -> DatasetIterator[Any]:
        """Return the iterator over this host's batches from `_next_index` on."""
        self._assert_not_closed()
        if self._batches is None:
            node = self._node
            host, hosts, batch_size = node._host_share()
            own = node._ds[self._next_index + host :: hosts]
            batches = own.batch(batch_size, drop_remainder=True)
            self._batches = iter(node._with_workers(batches))
        return self._batches

    def _release(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()


class ElasticStreamDatasetIterator(CheckedIterator[Any]):
    """Iterates over a host's share of a stream that all hosts run."""

    _STATE = states.fields(global_next_index=states.count, stream=states.parent)

    def __init__(self, node: ElasticIterator) -> None:
        with treat_as_part():
            super().__init__(iter(node._with_workers(node._ds)))
        self._node = node
        self._next_index = 0
        # This host's elements of the current global batch, and the number read for all
        # hosts.  Between calls these are empty, unless the stream ended or failed
        # within the batch.
        self._own_elements: list[Any] = []
        self._elements_read = 0
        # The state of the stream before the current global batch.
        self._state_before_batch: Any = None

    def __next__(self) -> Any:
        host, hosts, batch_size = self._node._host_share()
        if not self._elements_read:
            self._state_before_batch = copy_state(self._parent.get_state())
        while self._elements_read < hosts * batch_size:
            cancellation.check()
            element = next(self._parent)
            if self._elements_read % hosts == host:
                self._own_elements.append(element)
            self._elements_read += 1
        own, self._own_elements, self._elements_read = self._own_elements, [], 0
        self._next_index += hosts * batch_size
        try:
            return batching.make_batch(own)
        except StopIteration as error:
            raise as_failure(error, self) from error

    @property
    def _fits_all_processes(self) -> bool:
        return True

    def get_state(self) -> Any:
        """Return the elements consumed by all hosts, and the state of the stream."""
        partial = self._elements_read > 0
        stream = self._state_before_batch if partial else self._parent.get_state()
        return {"global_next_index": self._next_index, "stream": stream}

    def _go_to(self, state: Any) -> None:
        self._parent.set_state(state["stream"])
        self._next_index = state["global_next_index"]
        self._own_elements, self._elements_read = [], 0
