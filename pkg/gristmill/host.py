"""One pool of workers for all ranks of a host."""

from __future__ import annotations

import copy
import dataclasses

from gristmill._host.backend import HostWorkers
from gristmill._host.client import HostPoolOptions
from gristmill.sharding import ShardOptions


def share(loader, *, name, rank, ranks, mode="deal", ahead=16):
    shared = copy.copy(loader)
    if mode == "deal":
        shard = loader._shard_options
        shared._shard_options = ShardOptions(rank, ranks, shard.drop_remainder)
        shared._program = shared._compile(loader._program.streams)
        shared._pipeline = dataclasses.replace(
            loader._pipeline, program=shared._program
        )
    remote = loader._remote
    options = HostPoolOptions(name, rank, ranks, mode, ahead, remote.memory_limit)
    program = loader._program
    parts = {
        "data_source": loader._data_source,
        "sampler": loader._sampler,
        "operations": loader._operations,
    }
    backend = HostWorkers(remote.workers, remote.buffer, options, parts)
    shared._remote = dataclasses.replace(remote, backend=backend)
    return iter(shared)
