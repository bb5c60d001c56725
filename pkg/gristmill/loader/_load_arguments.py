"""Types of the keyword arguments in overloads of `load`."""

from __future__ import annotations

from typing import Required, TypedDict

from gristmill import sharding
from gristmill._base.types import WorkerInitFn
from gristmill._engine.workers import WorkerBackend
from gristmill.options import ReadOptions, WorkerCount


class Loading(TypedDict, total=False):
    """Arguments that do not change the type of the elements."""

    num_epochs: int | None
    shuffle: bool
    seed: int | None
    shard_options: sharding.ShardOptions
    transformations: tuple[()]
    worker_count: WorkerCount | None
    read_options: ReadOptions | None
    workers: WorkerBackend | None
    worker_init_fn: WorkerInitFn | None


class Batching(Loading, total=False):
    """Arguments for batches of a source's elements."""

    batch_size: Required[int]
    drop_remainder: bool
