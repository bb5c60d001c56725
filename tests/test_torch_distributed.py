"""Two real processes of torch.distributed: each gets its part, as torch deals them."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch.distributed")

HEAD = """
import sys
import torch
import torch.distributed as dist
import gristmill as g
from torch.utils.data.distributed import DistributedSampler

rank, meeting, *arguments = sys.argv[1:]
dist.init_process_group(
    "gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=2
)

def gathered(mine):
    everybody = [None, None]
    dist.all_gather_object(everybody, mine)
    return everybody
"""

# Every epoch of the loader named, beside torch's, over what set_epoch deals out.
SAMPLED = """
import importlib

module, name = arguments
Loader = getattr(importlib.import_module(module), name)
Expected = torch.utils.data.DataLoader
data = torch.utils.data.TensorDataset(torch.arange(43), torch.arange(43.0))

def epochs(kind, shuffle, drop_last, workers):
    sampler = DistributedSampler(data, shuffle=shuffle, drop_last=drop_last, seed=7)
    made = kind(
        data, batch_size=5, sampler=sampler, drop_last=drop_last, num_workers=workers
    )
    assert made.sampler is sampler
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = [(a.tolist(), b.tolist()) for a, b in made]
        assert len(batches) == len(made) == (4 if drop_last else 5)
        yield batches

for shuffle in (False, True):
    for drop_last in (False, True):
        expected = list(epochs(Expected, shuffle, drop_last, 0))
        for workers in (0, 2):
            assert list(epochs(Loader, shuffle, drop_last, workers)) == expected
        assert (expected[0] == expected[1]) is not shuffle
        for parts in zip(*gathered(expected), strict=True):
            seen = [i for part in parts for batch, _ in part for i in batch]
            if drop_last:
                assert len(seen) == len(set(seen)) == 40
            else:
                assert len(seen) == 44 and set(seen) == set(range(43))
"""

# A loader of this library deals out its own shards, whichever process asks.
SHARDED = """
from gristmill.torch import to_device

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
    assert sorted(sum(gathered(records(False, workers)), [])) == list(range(43))
"""

TAIL = """
dist.barrier()
dist.destroy_process_group()
"""


def run_in_two_processes(script, folder, *arguments):
    """Run a script that ends without an error in both processes of a group."""
    meeting = folder / "meeting"
    command = [sys.executable, "-c", HEAD + script + TAIL]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(meeting), *arguments],
            cwd=pathlib.Path(__file__).parent,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], errors


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("module", "name"), [("gristmill.torch", "DataLoader")], ids=["gristmill"]
)
def test_a_distributed_sampler_gives_each_process_torchs_batches(
    tmp_path, module, name
):
    run_in_two_processes(SAMPLED, tmp_path, module, name)


@pytest.mark.multiprocess
def test_shards_of_two_processes_are_the_data_set(tmp_path):
    run_in_two_processes(SHARDED, tmp_path)
