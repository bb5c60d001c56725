"""Pipelines, faults and process helpers of the fault tests' programs."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gristmill as g

# Longest time from a fault to its outcome, and longest wait for other events.
OUTCOME_S = 15.0
PATIENCE_S = 20.0
RECORDS = 96
BATCH = 4


class Add(g.MapTransform):
    def map(self, x):
        return x + 1


class Some(g.FilterTransform):
    """Keep two of three elements of each stream."""

    def filter(self, x):
        return x % 3 != 1


class At(g.MapTransform):
    """Call `fault` on one record; its result, unless None, replaces the element."""

    def __init__(self, record: int, fault: Callable[[], Any]) -> None:
        self.record = record
        self.fault = fault

    def map(self, x):
        if x == self.record:
            found = self.fault()
            return x if found is None else found
        return x


class Once:
    """Call `fault` in the first process that gets here, which creates `path`."""

    def __init__(self, path: str, fault: Callable[[], Any]) -> None:
        self.path = path
        self.fault = fault

    def __call__(self):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            return self.fault()


def loader(operations, *, records=RECORDS, workers=2, batch=BATCH, **options):
    """Return a loader of 0, 1, ... in 2 streams for any number of workers."""
    if batch:
        operations = [*operations, g.Batch(batch)]
    options.setdefault("streams", 2)
    return g.DataLoader(
        data_source=np.arange(records),
        sampler=g.IndexSampler(records, shuffle=False, num_epochs=1, seed=0),
        operations=operations,
        worker_count=workers,
        **options,
    )


def filtered(*operations):
    """Return operations that drop some records, so that streams have owners."""
    return [Some(), *operations]


def of_kind(kind, *operations):
    """Return the operations, `filtered` if the kind is "filtered"."""
    return filtered(*operations) if kind == "filtered" else [*operations]


def digest(elements) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Return dtype, shape and bytes of arrays."""
    arrays = [np.asarray(element) for element in elements]
    return [(str(a.dtype), a.shape, a.tobytes()) for a in arrays]


def undisturbed(operations, **options):
    """Return the output of a loader in this process."""
    return digest(loader(operations, workers=0, **options))


def expect(kind, call, deadline_s=OUTCOME_S) -> Any:
    """Return the exception of exactly this type, which `call` must raise in time."""
    began = time.monotonic()
    try:
        found = call()
    except BaseException as error:
        took = time.monotonic() - began
        assert type(error) is kind, repr(error)
        assert took < deadline_s, took
        return error
    raise AssertionError(f"no {kind.__name__}, but {found!r}")


@contextlib.contextmanager
def in_time(deadline_s=OUTCOME_S) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < deadline_s, f"took {took:.2f} s"


def check_rest(iterator, reference, at) -> None:
    """Assert that an iterator gives the reference from output `at` on, in time."""
    with in_time():
        rest = digest(iterator)
    assert rest == reference[at:], f"differs within {len(rest)} outputs from {at}"


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, the nearest first."""
    found = children(pid)
    for child in found:
        found.extend(children(child))
    return found


def engine_processes(workers: int, pid: int | None = None) -> dict[str, list[int]]:
    """Wait until a process has `workers` workers; return the engine's processes."""
    owner = pid or os.getpid()
    for _ in wait_until(f"{workers} workers of {owner}"):
        launchers = children(owner)
        zygotes = [z for launcher in launchers for z in children(launcher)]
        found = [w for z in zygotes for w in children(z) if not has_ended(w)]
        if len(found) == workers:
            return {"launcher": launchers, "zygote": zygotes, "worker": found}
    raise AssertionError


def await_asleep(pid: int) -> None:
    """Wait until another process is idle."""
    _await_no_switches(Path(f"/proc/{pid}/status"))


def await_parked(thread: int) -> None:
    """Wait until a thread of this process sleeps, not only for the GIL."""
    _await_no_switches(Path(f"/proc/self/task/{thread}/status"))


def _await_no_switches(status: Path) -> None:
    before, same = "", 0
    for _ in wait_until("a thread that sleeps"):
        lines = status.read_text().splitlines()
        sleeps = any(line.startswith("State:\tS") for line in lines)
        now = "".join(line for line in lines if "ctxt" in line)
        same = same + 1 if now == before and sleeps else 0
        before = now
        if same == 5:
            return


def wait_until(what: str, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Yield until the caller leaves the loop."""
    deadline = time.monotonic() + patience_s
    never = threading.Event()
    while time.monotonic() < deadline:
        yield
        never.wait(0.002)
    raise AssertionError(f"waited {patience_s} s in vain for {what}")


def watched(pids) -> list[int]:
    """Return a pidfd for each process that still runs."""
    found = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            found.append(os.pidfd_open(pid))
    return found


def await_gone(pidfds, deadline_s=OUTCOME_S) -> None:
    """Wait until all these processes have ended."""
    deadline = time.monotonic() + deadline_s
    for pidfd in pidfds:
        left = max(deadline - time.monotonic(), 0)
        assert select.select([pidfd], [], [], left)[0], "a process is still there"
        os.close(pidfd)
