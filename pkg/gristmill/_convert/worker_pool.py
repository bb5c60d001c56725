"""Runs tasks in worker processes, and yields their reports."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from gristmill import _core
from gristmill._convert.errors import ConversionError

Work = Callable[[Any], Iterator[Any]]


def run(work: Work, tasks: Sequence[Any], processes: int) -> Generator[tuple[int, Any]]:
    """Run each task in one of several processes.

    Args:
        work: A module-level function that yields the reports of one task. Reports must
            not be None.
        tasks: The arguments of `work`; tasks start in this order.
        processes: The number of tasks to run at once. 1 runs them in this process.

    Yields:
        The number of a task, and a report of it, in the order of arrival.

    Raises:
        Exception: The first exception of a task. The other tasks are then stopped.
        ConversionError: A process was killed.
    """
    if processes <= 1 or len(tasks) <= 1:
        for number, task in enumerate(tasks):
            for report in work(task):
                yield number, report
        return
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, Any] = {}
    try:
        with _blocked_interrupts():
            for _ in range(min(processes, len(tasks))):
                connection, worker_connection = context.Pipe()
                arguments = (os.getpid(), work, worker_connection)
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                worker_connection.close()
                workers[connection] = process
        yield from _distribute(workers, tasks)
    finally:
        for connection, process in workers.items():
            process.kill()
            connection.close()
        for process in workers.values():
            process.join()


@contextlib.contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block Ctrl-C.  Processes that start now never receive it.

    Ctrl-C signals all processes of a terminal; the parent process ends the workers.
    """
    resource_tracker.ensure_running()  # Starting it unblocks the signal.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _distribute(
    workers: dict[Connection, Any], tasks: Sequence[Any]
) -> Iterator[tuple[int, Any]]:
    """Send tasks to idle workers until all are done, and yield the reports."""
    pending = iter(enumerate(tasks))
    # Maps the connection of each working process to the number of its task; -1 before
    # its first task.
    current_tasks: dict[Any, int] = dict.fromkeys(workers, -1)
    while current_tasks:
        for connection in wait(list(current_tasks)):
            assert isinstance(connection, Connection)
            try:
                report = connection.recv()
                if report is None:
                    del current_tasks[connection]
                    if numbered_task := next(pending, None):
                        current_tasks[connection], task = numbered_task
                        connection.send(task)
                    continue
            except (EOFError, ConnectionError):
                raise _exit_error(workers[connection]) from None
            if isinstance(report, BaseException):
                raise report
            yield current_tasks[connection], report


def _exit_error(process: Any) -> ConversionError:
    process.join()
    code = process.exitcode or 0
    cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
    return ConversionError(
        f"a worker process ended by {cause}. If the system ran out of memory, pass"
        " fewer --processes."
    )


def _serve(parent: int, work: Work, connection: Connection) -> None:
    """Run tasks in a worker process, and send None to request each.

    Sends the exception if a task fails. The parent kills this process at the end.
    """
    _core.die_with_parent(parent)
    try:
        while True:
            connection.send(None)
            for report in work(connection.recv()):
                connection.send(report)
    except ConversionError as problem:
        connection.send(problem)
    except Exception as error:
        error.add_note(traceback.format_exc())
        connection.send(error)
