"""Texts of errors and warnings about workers."""

from __future__ import annotations

import os
import signal

from gristmill import _core
from gristmill._engine.stream import Runnable
from gristmill.errors import ArenaFull


def arena_full_error(
    due: _core.NextResult, one: str, many: str, copy: str
) -> ArenaFull:
    """Return the exception for an output without room in shared memory.

    Args:
        due: The scheduler's result.
        one: The caller's name of an output, with its article.
        many: The plural of that name.
        copy: The verb for copying an output out of its slot.
    """
    return ArenaFull(
        f"{one} needs {due.needed_bytes} bytes of shared memory, but {due.used_bytes} "
        f"of {due.limit_bytes} are in use: {due.viewed_bytes} by {due.viewed_slots} "
        f"{many} that you keep. Keep fewer, {copy} what you keep, or raise "
        "memory_limit."
    )


def closed_error(owner: int) -> RuntimeError:
    """Return the exception for a closed scheduler, or one of another process.

    Args:
        owner: The process that made the iterator.
    """
    if os.getpid() != owner:
        return RuntimeError(
            "This iterator belongs to the process that made it, and this process "
            "is a fork of that. Make a new iterator here."
        )
    return RuntimeError(
        "The iterator was closed while another thread waited for its next output."
    )


def slow_unit_message(due: _core.NextResult, activity: str) -> str:
    """Describe a unit that takes much longer than those before it.

    Args:
        due: The scheduler's result.
        activity: A description of the worker's current activity.
    """
    return (
        f"Worker {due.worker} {_task_of(due)}. It has spent {due.busy_s:.3g} s on this"
        f" unit of stream {due.stream}; earlier units took {due.usual_s:.3g} s on"
        f" average.\n{activity}"
    )


def stall_message(due: _core.NextResult, seconds: float) -> str:
    """Describe a stall, for `seconds`, that no worker has caused."""
    if due.needed_bytes:
        return (
            f"No output for {seconds:g} s: the next output of stream {due.stream} needs"
            f" memory that later outputs occupy. {due.used_bytes} of"
            f" memory_limit={due.limit_bytes} bytes are in use. Raise memory_limit or"
            " use fewer workers."
        )
    return (
        f"No output for {seconds:g} s: no worker has begun the next output of stream"
        f" {due.stream}. A worker that can compute it is still starting."
    )


def worker_stall_message(
    due: _core.NextResult, seconds: float, activity: str, restarts: bool
) -> str:
    """Describe a stall, for `seconds`, that a worker has caused.

    Args:
        due: The scheduler's result.
        seconds: The time without an output.
        activity: A description of the worker's current activity.
        restarts: Whether the worker will be replaced.
    """
    action = 'Pass stall_action="restart" to kill it and start another one.'
    if restarts:
        action = "The worker will be killed and replaced."
    return (
        f"No output for {seconds:g} s: worker {due.worker} {_task_of(due)} of stream"
        f" {due.stream}.\n{activity}\n{action}"
    )


def _task_of(due: _core.NextResult) -> str:
    """Describe what a worker does while the consumer waits for it."""
    if due.idle:
        return "has not begun the next one"
    return f"works on record {due.record}" if due.record >= 0 else "works on a unit"


def death_message(due: _core.NextResult, max_restarts: int, program: Runnable) -> str:
    """Describe a worker's death: the cause, the record and the remedy."""
    details, status = due.text.strip(), due.wait_status
    if status is not None and status < 0:  # Unknown.
        status = None
    if due.at_start:
        return (
            "Worker processes cannot start. The last one reported:\n"
            f"{details or _exit_reason(status)}\n"
            f"Run with {program.in_this_process} to see the error in this process."
        )
    code = ""
    if status is not None:
        # Programs search for this text of Grain's error.
        code = f" with exit code {os.waitstatus_to_exitcode(status)}"
    where = f" on record {due.record}" if due.record >= 0 else ""
    text = (
        f"Worker process was terminated unexpectedly{code}: worker "
        f"{due.worker} {_exit_reason(status)}{where} of stream {due.stream}, "
        f"{due.attempts} times in a row (max_restarts={max_restarts}). If it was "
        "killed for memory, use fewer workers or smaller batches; else "
        f"{program.replay_hint} computes this output in your own process."
    )
    return f"{text}\n{details}" if details else text


def _exit_reason(wait_status: int | None) -> str:
    if wait_status is None:
        return "died"
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        return f"exited with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name} (exit code {code})"
    except ValueError:
        return f"was killed by signal {-code} (exit code {code})"
