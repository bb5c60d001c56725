"""The programs of docs/many-ranks.md run as several ranks; its picture is current."""

import importlib
import os
import socket
import subprocess
import sys

import pytest

from house.test_docs import blocks_of
from support import extras
from support.places import ROOT

pytestmark = pytest.mark.multiprocess
TORCH, JAX = [block.code for block in blocks_of("docs/many-ranks.md") if block.runs]
FASTER = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


def start(*arguments, **variables):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **FASTER, **variables},
    )


def test_torchrun_program_deals_the_samples_to_two_ranks(tmp_path):
    extras.need("torch")
    program = tmp_path / "train.py"
    program.write_text(TORCH)
    module = "torch.distributed.run"
    done = start("-m", module, "--standalone", "--nproc-per-node", 2, program)
    printed, _ = done.communicate(timeout=120)
    assert done.returncode == 0
    # Two epochs of 500 samples in each rank.
    assert printed.split().count("1000") == 2


def test_jax_program_deals_the_samples_to_two_processes(tmp_path):
    extras.need("jax")
    program = tmp_path / "train.py"
    program.write_text(JAX)
    with socket.create_server(("127.0.0.1", 0)) as free:
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    ranks = [
        start(program, COORDINATOR=coordinator, PROCESS=str(rank), PROCESSES="2")
        for rank in range(2)
    ]
    printed = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert printed == ["500 samples\n"] * 2


def test_picture_of_ranks_is_that_of_its_program(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    picture = importlib.import_module("rank_picture").picture()
    assert (ROOT / "docs" / "plots" / "many-ranks.svg").read_text() == picture
