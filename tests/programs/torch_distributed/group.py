"""A group of two processes."""

import sys

import torch.distributed as dist


def join():
    """Join the group; return the program's own arguments."""
    rank, meeting, *arguments = sys.argv[1:]
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=2
    )
    return arguments


def gathered(mine):
    everybody = [None, None]
    dist.all_gather_object(everybody, mine)
    return everybody


def leave():
    dist.barrier()
    dist.destroy_process_group()
