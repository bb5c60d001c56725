"""Errors for workers that died, with torch's texts."""

from __future__ import annotations

import os
import signal

from gristmill import _core
from gristmill.errors import WorkerDied


def worker_died_error(result: _core.NextResult, details: str = "") -> Exception:
    """Return the error that torch raises for a worker that died.

    Args:
        result: The result of the scheduler.
        details: A report on the death, if the worker was not a child of this process.
    """
    if result.at_start:
        text = result.text.strip() or "They ended before they began to work."
        return WorkerDied(
            f"DataLoader workers cannot start. The last error was:\n{text}\n"
            "Rerunning with num_workers=0 may give better error trace."
        )
    if details:
        return WorkerDied(f"DataLoader worker exited unexpectedly: {details}")
    error = WorkerDied(f"DataLoader worker (pid(s) {result.pid}) exited unexpectedly")
    error.__cause__ = RuntimeError(
        f"DataLoader worker (pid {result.pid}) {_exit_text(result)}"
    )
    return error


def _exit_text(result: _core.NextResult) -> str:
    """Return how the process ended, in torch's words."""
    status = result.wait_status
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if code is None or code >= 0:
        return (
            f"exited unexpectedly with exit code {code}. Details are lost due to"
            " multiprocessing. Rerunning with num_workers=0 may give better error"
            " trace."
        )
    text = f"is killed by signal: {signal.strsignal(-code)}. "
    if -code == signal.SIGBUS:
        text += (
            "It is possible that dataloader's workers are out of shared memory. "
            "Please try to raise your shared memory limit."
        )
    return text
