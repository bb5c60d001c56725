"""Tests with two real processes of torch.distributed, which get torch's parts."""

import subprocess

import pytest

from faults.scripts import command, environment

pytest.importorskip("torch.distributed")


def run_in_two_processes(program, folder, *arguments):
    """Run a program in both processes of a group, and check that it succeeds."""
    meeting = folder / "meeting"
    processes = [
        subprocess.Popen(
            command(program, rank, meeting, *arguments),
            env=environment(),
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
def test_distributed_sampler_batches_match_torch(tmp_path, module, name):
    run_in_two_processes("torch_distributed/sampled", tmp_path, module, name)


@pytest.mark.multiprocess
def test_shards_of_two_processes_cover_the_dataset(tmp_path):
    run_in_two_processes("torch_distributed/shards", tmp_path)
