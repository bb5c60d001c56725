"""One of two processes, each with two devices, reads batches sharded over all four."""

import sys

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import gristmill as g
from gristmill.jax import prefetch_to_device

address, process, folder = sys.argv[1:]
process = int(process)
jax.distributed.initialize(address, 2, process)
assert (jax.device_count(), jax.local_device_count()) == (4, 2)
shard = g.ShardByJaxProcess(drop_remainder=True)
assert (shard.shard_index, shard.shard_count) == (process, 2)
made = g.DataLoader(
    data_source=np.arange(101),
    sampler=g.IndexSampler(101, shard, shuffle=True, num_epochs=1, seed=0),
    operations=[g.Batch(10)],
    worker_count=1,
)
rows = NamedSharding(Mesh(jax.devices(), "data"), PartitionSpec("data"))
batches = prefetch_to_device(made, rows)
mine, everybodys = [], []
for batch, own in zip(batches, made, strict=True):
    assert batch.shape == (20,) and batch.sharding == rows
    parts = sorted(batch.addressable_shards, key=lambda part: part.index[0].start)
    assert [part.index[0].start for part in parts] == [10 * process, 10 * process + 5]
    # This process's part of the global array is the batch from its own loader.
    assert np.concatenate([part.data for part in parts]).tolist() == own.tolist()
    mine += own.tolist()
    everybodys += process_allgather(batch, tiled=True).tolist()
assert sorted(mine) == [*range(50 * process, 50 * process + 50)]
assert sorted(everybodys) == [*range(100)]
g.checkpoint.CheckpointHandler().save(folder, batches)
