"""Batches for one of several hosts, resumed by any number of them.

There is one stream of elements, which does not depend on hosts.  Global batch b is its
elements ``[b * G, (b + 1) * G)``, and host h of H has every H-th of them, from h on.
If elements have indices, a host reads only its own; otherwise (filters, packing,
anything that is not a `MapDataset`) each host runs the stream.

Interleaved datasets are the exception: hosts share them out, as in Grain.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, Self

from gristmill import batching
from gristmill._base.checks import check_integer, check_options
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import CheckedIterator, DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import Dataset, chain_of, check_parents
from gristmill._dataset.model.observer import as_part
from gristmill._dataset.model.states import copied
from gristmill._dataset.nodes.elastic_shards import (
    ElasticShardsDatasetIterator,
    chain_to_share,
    share_of,
)
from gristmill._dataset.nodes.unsaved import check_saved, may_lack_state
from gristmill._hot import cancellation
from gristmill._hot.place import as_failure
from gristmill.checkpoint import Checkpointable
from gristmill.options import MultiprocessingOptions, ReadOptions
from gristmill.sharding import ShardOptions


class ElasticIterator(Checkpointable, IterDataset[Any]):
    """Batches of one host's share of a dataset.

    A state that one host saved fits all hosts, however many there are and whatever the
    batch size is afterwards: no element is lost or given twice.  All ``iter(ds)`` are
    the same iterator.

    The datasets of an `InterleaveIterDataset`, or the files of a `ParquetIterDataset`,
    are shared out instead: host h reads every H-th.  Steps behind it may be anything
    but zips and mixtures.  A state fits the host that saved it.  For another number of
    hosts, save the `get_shard_states` of all hosts, and give each new host the states
    of its datasets; `checkpoint.CheckpointHandler` does both.

    Args:
        ds: The dataset, neither batched nor sharded.  If it is an `IterDataset`, or
            drops elements, every host reads all of it, unless datasets are shared out.
        global_batch_size: Elements of a step in all hosts together, ``G``.  0 if
            datasets are shared out: elements come one by one.
        shard_options: Which host this is, and how many there are, ``H``.
        read_options: For `to_iter_dataset`.
        multiprocessing_options: For `mp_prefetch`; None uses no workers.  Every host
            reads all of an `IterDataset` then, and the order depends on the number of
            workers.

    Batches have ``G / H`` elements; what does not fill the last one is left out, except
    if datasets are shared out.

    Attributes:
        shard_options: Which host this is, and how many there are.

    Raises:
        ValueError: G is no multiple of H; at the first element.
        StateMismatch: A state is of a dataset of another kind.

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
        shared = None if multiprocessing_options is not None else chain_to_share(ds)
        if global_batch_size < (1 if shared is None else 0):
            raise ValueError(
                f"global_batch_size must be at least 1, got {global_batch_size}."
            )
        example = "ShardOptions(shard_index=0, shard_count=1)"
        check_options("shard_options", shard_options, ShardOptions, example)
        check_options("read_options", read_options, ReadOptions, "ReadOptions()")
        if (given := multiprocessing_options) is not None:
            kind, example = (
                MultiprocessingOptions,
                "MultiprocessingOptions(num_workers=2)",
            )
            check_options("multiprocessing_options", given, kind, example)
        self._ds: Any = ds
        # The same with datasets that hosts share out; None if each host reads all.
        self._shared: IterDataset[Any] | None = shared
        self._global_batch_size = int(global_batch_size)
        self.shard_options = shard_options
        self._read_options = read_options
        self._multiprocessing_options = multiprocessing_options

    def __iter__(self) -> DatasetIterator[Any]:
        return self._iterator

    def __next__(self) -> Any:
        return next(self._iterator)

    def get_state(self) -> Any:
        """Return the position in the stream, or in this host's datasets."""
        state = self._iterator.get_state()
        check_saved(state)
        return state

    def set_state(self, state: Any) -> None:
        """Continue at a position, after `close` as well."""
        self._reopened().set_state(state)

    def get_shard_states(self) -> dict[int, Any]:
        """Return the position of each dataset of this host, by its number.

        Returns:
            ``{"exhausted": 0 or 1, "state": its iterator's state}`` of each.

        Raises:
            NotImplementedError: No datasets are shared out.
        """
        return self._shards("get_shard_states").get_shard_states()

    def set_shard_states(self, shard_states: Mapping[Any, Any]) -> None:
        """Continue at positions of this host's datasets.

        Args:
            shard_states: What hosts returned of them, by number, or by its text.

        Raises:
            NotImplementedError: No datasets are shared out.
            StateMismatch: They are not the positions of this host's datasets.
        """
        self._reopened()
        self._shards("set_shard_states").set_shard_states(shard_states)

    def start_prefetch(self) -> None:
        """Begin to work in the background, if a part of the chain can."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """End threads and workers."""
        self._iterator.close()

    @property
    def base_iterator(self) -> DatasetIterator[Any]:
        """The iterator that this iterates with."""
        return self._iterator

    def _shards(self, function: str) -> ElasticShardsDatasetIterator:
        if not isinstance(self._iterator, ElasticShardsDatasetIterator):
            raise NotImplementedError(
                f"{function} is only supported for IterDataset-based ElasticIterator"
                " with an InterleaveIterDataset or several Parquet files. Otherwise the"
                " state of one host fits all hosts."
            )
        return self._iterator

    def _reopened(self) -> DatasetIterator[Any]:
        if self._iterator._closed:
            del self._iterator
        return self._iterator

    @functools.cached_property
    def _iterator(self) -> DatasetIterator[Any]:
        if self._shared is not None:
            return ElasticShardsDatasetIterator(
                self._shared,
                self._global_batch_size,
                self.shard_options,
                lambda: ElasticStreamDatasetIterator(self),
            )
        nodes = chain_of(self._ds)
        dense = isinstance(self._ds, MapDataset) and not any(n._SPARSE for n in nodes)
        if dense:  # It has indices, and an element at each.
            return ElasticMapDatasetIterator(self)
        return ElasticStreamDatasetIterator(self)

    @property
    def _may_lack_state(self) -> bool:  # type: ignore[override]
        return may_lack_state(self._ds)

    def _in_epoch(self, epoch: int) -> Self:
        made = copy.copy(self)
        made.__dict__.pop("_iterator", None)
        made._ds = self._ds._in_epoch(epoch)
        if self._shared is not None:
            made._shared = self._shared._in_epoch(epoch)
        return made

    def _share(self) -> tuple[int, int, int]:
        """Return which host this is, how many there are, and elements of each."""
        return share_of(self._global_batch_size, self.shard_options)

    def _iterated(self, ds: Any) -> IterDataset[Any]:
        """A dataset that is iterated over as the options say."""
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
        # Of the part of the dataset from `_next_index` on; None where it is not made.
        self._batches: DatasetIterator[Any] | None = None

    def __next__(self) -> Any:
        batch = next(self._opened())
        self._next_index += self._node._global_batch_size
        return batch

    def get_state(self) -> Any:
        """How many elements all hosts together were given."""
        return {"global_next_index": self._next_index}

    def _go_to(self, state: Any) -> None:
        self._release()
        self._next_index = state["global_next_index"]

    def start_prefetch(self) -> None:
        self._opened().start_prefetch()

    def _opened(self) -> DatasetIterator[Any]:
        self._assert_not_closed()
        if self._batches is None:
            node = self._node
            host, hosts, each = node._share()
            own = node._ds[self._next_index + host :: hosts]
            batches = own.batch(each, drop_remainder=True)
            self._batches = iter(node._iterated(batches))
        return self._batches

    def _release(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()


class ElasticStreamDatasetIterator(CheckedIterator[Any]):
    """Iterates over a host's share of a stream that all hosts run."""

    _STATE = states.fields(global_next_index=states.count, stream=states.parent)

    def __init__(self, node: ElasticIterator) -> None:
        with as_part():
            super().__init__(iter(node._iterated(node._ds)))
        self._node = node
        self._next_index = 0
        # The elements of the global batch in hand that were read: its own, and how
        # many in all.  Some only where the stream has ended or failed within it.
        self._own: list[Any] = []
        self._read = 0
        # Where the stream was before them.
        self._before: Any = None

    def __next__(self) -> Any:
        host, hosts, each = self._node._share()
        if not self._read:
            self._before = copied(self._parent.get_state())
        while self._read < hosts * each:
            cancellation.check()
            element = next(self._parent)
            if self._read % hosts == host:
                self._own.append(element)
            self._read += 1
        own, self._own, self._read = self._own, [], 0
        self._next_index += hosts * each
        try:
            return batching.make_batch(own)
        except StopIteration as error:
            raise as_failure(error, self) from error

    def get_state(self) -> Any:
        """How many elements all hosts together were given, and where the stream is."""
        stream = self._before if self._read else self._parent.get_state()
        return {"global_next_index": self._next_index, "stream": stream}

    def _go_to(self, state: Any) -> None:
        self._parent.set_state(state["stream"])
        self._next_index = state["global_next_index"]
        self._own, self._read = [], 0
