"""Shares the workers of a `gristmill.DataLoader`."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from gristmill._engine import arguments
from gristmill._engine.compilation import differs_from_grain
from gristmill._host.backend import HostWorkers, check_workers_of_host
from gristmill._host.client import HostPoolOptions
from gristmill._host.mode import Mode
from gristmill.loader import DataLoader, DataLoaderIterator
from gristmill.samplers import IndexSampler
from gristmill.sharding import NoSharding, ShardOptions


def share_loader(
    loader: DataLoader[Any], options: HostPoolOptions
) -> DataLoaderIterator[Any]:
    """Return an iterator of a rank.

    Raises:
        ValueError: The loader has no workers of this machine, or another shard.
    """
    remote = loader._remote
    check_workers_of_host(
        "loader",
        "this one",
        "worker_count",
        remote.backend,
        loader.multiprocessing_options.num_workers,
        loader._program.streams,
    )
    shared = copy.copy(loader)
    if options.mode is Mode.DEAL:
        _deal(shared, options)
    options = options._replace(memory_limit=remote.memory_limit)
    parts: dict[str, Any] = {
        "kind": "DataLoader",
        "data_source": loader._data_source,
        "sampler": _unsharded(loader._sampler),
        "operations": loader._operations,
        "streams": loader._program.streams,
        "on_error": (loader._error_policy.on_error, loader._error_policy.max_errors),
        "worker_init_fn": loader._worker_init_fn,
    }
    if options.mode is Mode.BROADCAST:
        parts["shard_options"] = loader._shard_options
    backend = HostWorkers(remote.workers, remote.buffer, options, parts)
    shared._remote = dataclasses.replace(remote, backend=backend)
    return iter(shared)


def _deal(shared: DataLoader[Any], options: HostPoolOptions) -> None:
    """Make a copy of a loader read the part of a rank."""
    before = shared._shard_options
    if before.shard_count == options.ranks and before.shard_index == options.rank:
        return
    if before.shard_count != 1:
        raise ValueError(
            "The loader must have NoSharding(), or the shard of this rank,"
            f" {options.rank} of {options.ranks}, but it has shard"
            f" {before.shard_index} of {before.shard_count}. Pass"
            " shard_options=NoSharding() to the loader."
        )
    shard = ShardOptions(options.rank, options.ranks, before.drop_remainder)
    streams = shared._program.streams
    if shared._shards_sampler and isinstance(shared._sampler, IndexSampler):
        shared._sampler = shared._sampler._with_shard_options(shard)
    arguments.check_ranks(shared._sampler, shard, shared._operations, streams)
    shared._shard_options = shard
    shared._program = shared._compile(streams)
    shared._pipeline = dataclasses.replace(
        shared._pipeline,
        program=shared._program,
        sampler=repr(shared._sampler),
        differs_from_grain=differs_from_grain(shared._sampler),
    )


def _unsharded(sampler: Any) -> Any:
    """Return what is the same in the samplers of all ranks."""
    if isinstance(sampler, IndexSampler):
        return sampler._with_shard_options(NoSharding())
    return sampler
