"""A Gristmill loader with a sampler sharded by torch's rank."""

import itertools

import torch.distributed as dist

import gristmill as g
from gristmill.torch import to_device
from programs.torch_distributed.group import gathered, join, leave

join()


def records(drop_remainder, workers):
    shard = g.ShardByTorchProcess(drop_remainder)
    assert (shard.shard_index, shard.shard_count) == (dist.get_rank(), 2)
    made = g.DataLoader(
        data_source=range(43),
        sampler=g.IndexSampler(43, shard, shuffle=True, num_epochs=1, seed=0),
        operations=[g.Batch(5)],
        worker_count=workers,
    )
    return [i for batch in to_device(made, "cpu") for i in batch.tolist()]


for workers in (0, 2):
    parts = gathered(records(True, workers))
    assert [sorted(part) for part in parts] == [[*range(21)], [*range(21, 42)]]
    assert sorted(itertools.chain(*gathered(records(False, workers)))) == list(
        range(43)
    )

leave()
