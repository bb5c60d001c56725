"""Runs tasks in worker processes, and yields their reports."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
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
        for _ in range(min(processes, len(tasks))):
            ours, theirs = context.Pipe()
            arguments = (os.getpid(), work, theirs)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            workers[ours] = process
        yield from _reports(workers, tasks)
    finally:
        for ours, worker in workers.items():
            worker.kill()
            ours.close()
        for worker in workers.values():
            worker.join()


def _reports(
    workers: dict[Connection, Any], tasks: Sequence[Any]
) -> Iterator[tuple[int, Any]]:
    """Send tasks to idle workers until all are done, and yield the reports."""
    waiting = iter(enumerate(tasks))
    doing: dict[Any, int] = dict.fromkeys(workers, -1)
    while doing:
        for ready in wait(list(doing)):
            assert isinstance(ready, Connection)
            try:
                report = ready.recv()
                if report is None:
                    del doing[ready]
                    if found := next(waiting, None):
                        doing[ready], task = found
                        ready.send(task)
                    continue
            except (EOFError, ConnectionError):
                raise _end_of(workers[ready]) from None
            if isinstance(report, BaseException):
                raise report
            yield doing[ready], report


def _end_of(process: Any) -> ConversionError:
    process.join()
    code = process.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
    return ConversionError(
        f"a worker process ended by {how}. If the system ran out of memory, pass"
        " fewer --processes."
    )


def _serve(parent: int, work: Work, connection: Connection) -> None:
    """Run tasks, requesting each by sending None. The parent kills this process."""
    _core.die_with_parent(parent)
    # Ctrl-C signals all processes of a terminal; the parent process ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
