"""The rank of this process, from the program that has started it.

That is torchrun, Open MPI's mpirun or Slurm, which set environment variables, or JAX.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import NamedTuple

from gristmill._host.mode import Mode

_ADVICE = (
    "Start the program with torchrun, srun or mpirun, or pass name=, rank= and ranks=."
)


class Launch(NamedTuple):
    """The place of this process in a job.

    Attributes:
        name: A name that all processes of the job have.
        rank: The number of this process.
        ranks: The number of processes.
    """

    name: str
    rank: int
    ranks: int


def find_launch(mode: Mode) -> Launch | None:
    """Return the place of this process in its job; None if nothing describes it.

    Args:
        mode: Ranks that divide the data are all processes of the job.  Ranks that read
            the same outputs are its processes on this host.

    Raises:
        ValueError: A variable is missing, or is not an integer.
    """
    # The launchers that a program calls itself come first: they may run under Slurm.
    sources: list[Callable[[Mode], Launch | None]]
    sources = [_of_torchrun, _of_mpirun, _of_jax, _of_slurm]
    launch = next((launch for find in sources if (launch := find(mode))), None)
    # A name with a slash would be the path of a socket.
    return launch and launch._replace(name=launch.name.replace("/", "|"))


def count_ranks_of_host() -> int:
    """Return the number of processes of the job on this host; 1 if it is unknown."""
    try:
        launch = find_launch(Mode.BROADCAST)
    except ValueError:
        return 1
    return 1 if launch is None else max(1, launch.ranks)


def _of_torchrun(mode: Mode) -> Launch | None:
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if run == "none":  # The default of torchrun.
        parts = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
        run = ":".join(parts)
    names = ("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return Launch(f"torchrun {run}", *_numbers(names[mode is Mode.BROADCAST]))


def _of_mpirun(mode: Mode) -> Launch | None:
    prefix = "OMPI_COMM_WORLD_"
    if prefix + "RANK" not in os.environ:
        return None
    jobs = (os.environ.get(name) for name in ("PMIX_NAMESPACE", "OMPI_MCA_orte_jobid"))
    job = next(filter(None, jobs), "")
    local = "LOCAL_" if mode is Mode.BROADCAST else ""
    names = f"{prefix}{local}RANK", f"{prefix}{local}SIZE"
    return Launch(f"mpirun {job}", *_numbers(names))


def _of_jax(mode: Mode) -> Launch | None:
    # JAX does not report which of its processes run on this host.
    if mode is Mode.BROADCAST or "jax" not in sys.modules:
        return None
    import jax

    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if getattr(state, "client", None) is None:  # Not initialized.
        return None
    address = getattr(state, "coordinator_address", "")
    return Launch(f"jax {address}", jax.process_index(), jax.process_count())


def _of_slurm(mode: Mode) -> Launch | None:
    # Slurm also sets the rank, 0, in a batch script, whose programs are not tasks.
    if "SLURM_PROCID" not in os.environ or "SLURM_STEP_ID" not in os.environ:
        return None
    job, step = (os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    name = f"slurm {job}.{step}"
    if mode is Mode.DEAL:
        return Launch(name, *_numbers(("SLURM_PROCID", "SLURM_NTASKS")))
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE")
    if tasks is None:
        return Launch(name, *_numbers(("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")))
    rank, node = _numbers(("SLURM_LOCALID", "SLURM_NODEID"))
    return Launch(name, rank, _tasks_of(node, tasks))


def _tasks_of(node: int, text: str) -> int:
    """Return a node's number of tasks in Slurm's text for all nodes, like "2(x3),1"."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            break
        counts += [int(found[1])] * int(found[2] or 1)
    if node >= len(counts):
        raise ValueError(
            "SLURM_STEP_TASKS_PER_NODE must have the number of tasks of node"
            f" {node} (SLURM_NODEID), like '2(x3),1', got {text!r}. {_ADVICE}"
        )
    return counts[node]


def _numbers(names: tuple[str, ...]) -> list[int]:
    """Return the integers in environment variables."""
    numbers = []
    for name in names:
        text = os.environ.get(name)
        if text is None or not text.strip().isdecimal():
            found = "it is not set" if text is None else f"got {text!r}"
            raise ValueError(f"{name} must be an int >= 0, but {found}. {_ADVICE}")
        numbers.append(int(text))
    return numbers
