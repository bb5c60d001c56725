"""Two real processes of torch.distributed: each gets its part, as torch deals them."""

import subprocess

import pytest

from faults.scripts import command, environment

pytest.importorskip("torch.distributed")


def run_in_two_processes(program, folder, *arguments):
    """Run a program that ends without an error in both processes of a group."""
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
def test_a_distributed_sampler_gives_each_process_torchs_batches(
    tmp_path, module, name
):
    run_in_two_processes("torch_distributed/sampled", tmp_path, module, name)


@pytest.mark.multiprocess
def test_shards_of_two_processes_are_the_data_set(tmp_path):
    run_in_two_processes("torch_distributed/shards", tmp_path)
