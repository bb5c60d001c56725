"""The name, the rank and the number of ranks come from the program's launcher."""

import os
import sys
from types import SimpleNamespace

import pytest

from gristmill._host.launch_variables import Launch, find_launch
from gristmill._host.mode import Mode

PREFIXES = ("SLURM_", "OMPI_", "PMIX_", "TORCHELASTIC_", "MASTER_")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "TORCHELASTIC_RUN_ID": "run 7",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "job 7",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS_PER_NODE": "4",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
}
# The variables of a program that a batch script starts without srun.
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}


@pytest.fixture
def set_variables(monkeypatch):
    for name in [*os.environ]:
        if name.startswith(PREFIXES) or name in NAMES:
            monkeypatch.delenv(name)

    def set_all(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        (TORCHRUN, "torchrun run 7"),
        (MPIRUN, "mpirun job 7"),
        (SLURM, "slurm 7.0"),
        ({**SLURM, **TORCHRUN}, "torchrun run 7"),
        ({**SLURM, **MPIRUN}, "mpirun job 7"),
    ],
)
def test_ranks_are_global_to_deal_and_local_to_broadcast(
    set_variables, variables, name
):
    set_variables(variables)
    assert find_launch(Mode.DEAL) == Launch(name, 5, 8)
    assert find_launch(Mode.BROADCAST) == Launch(name, 1, 4)


def test_torchrun_without_id_is_named_by_its_address(set_variables):
    address = {"MASTER_ADDR": "node3", "MASTER_PORT": "29500"}
    set_variables({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", **address})
    assert find_launch(Mode.DEAL) == Launch("torchrun node3:29500", 5, 8)


def test_name_with_slash_is_not_a_path(set_variables):
    set_variables({**TORCHRUN, "TORCHELASTIC_RUN_ID": "team/run"})
    assert find_launch(Mode.DEAL) == Launch("torchrun team|run", 5, 8)


def test_processes_of_jax_are_ranks_that_divide_the_data(set_variables, monkeypatch):
    state = SimpleNamespace(client=None, coordinator_address="node3:1234")
    jax = SimpleNamespace(process_index=lambda: 3, process_count=lambda: 4)
    monkeypatch.setitem(sys.modules, "jax", jax)
    distributed = SimpleNamespace(global_state=state)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", distributed)
    assert find_launch(Mode.DEAL) is None  # Not initialized.
    state.client = object()
    set_variables(SLURM)
    assert find_launch(Mode.DEAL) == Launch("jax node3:1234", 3, 4)
    assert find_launch(Mode.BROADCAST) == Launch("slurm 7.0", 1, 4)


@pytest.mark.parametrize(("node", "ranks"), [("0", 2), ("2", 2), ("3", 5)])
def test_slurm_step_has_tasks_of_each_node(set_variables, node, ranks):
    tasks = {"SLURM_STEP_TASKS_PER_NODE": "2(x3),5", "SLURM_NODEID": node}
    set_variables({**SLURM, **tasks})
    assert find_launch(Mode.BROADCAST) == Launch("slurm 7.0", 1, ranks)


@pytest.mark.parametrize("variables", [{}, BATCH_SCRIPT])
def test_process_without_launcher_has_no_launch(set_variables, variables):
    set_variables(variables)
    assert find_launch(Mode.DEAL) is find_launch(Mode.BROADCAST) is None


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({**TORCHRUN, "RANK": "x"}, "RANK must be an int >= 0, but got 'x'"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK must be an int >= 0, but got '-1'"),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0"},
            "SLURM_NTASKS must be an int >= 0, but it is not set",
        ),
    ],
)
def test_bad_variable_raises_error_with_its_name(set_variables, variables, text):
    set_variables(variables)
    with pytest.raises(ValueError, match=text):
        find_launch(Mode.DEAL)


@pytest.mark.parametrize(("text", "node"), [("2(x2)", "2"), ("2(y2)", "0"), ("", "0")])
def test_bad_tasks_per_node_raise_error(set_variables, text, node):
    tasks = {"SLURM_STEP_TASKS_PER_NODE": text, "SLURM_NODEID": node}
    set_variables({**SLURM, **tasks})
    with pytest.raises(ValueError, match="SLURM_STEP_TASKS_PER_NODE must have"):
        find_launch(Mode.BROADCAST)
