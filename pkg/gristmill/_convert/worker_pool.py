"""Runs tasks in worker processes, and hands on what they report."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from gristmill import _core
from gristmill._convert.problem import Problem

__all__ = ["run"]

Task = Any
Work = Callable[[Task], Iterator[Any]]


class Done(NamedTuple):
    """Says that a worker has finished its task."""


def run(
    work: Work, tasks: Sequence[Task], processes: int
) -> Generator[tuple[int, Any]]:
    """Do each task in one of several processes.

    Args:
        work: Yields the reports of one task. A function of a module.
        tasks: What it is called with; they are begun in this order.
        processes: How many tasks run at once. 1 runs them in this process.

    Yields:
        The number of a task, and a report of it, as they come.

    Raises:
        Exception: The first that a task raised; the other tasks are ended then.
        Problem: A process was killed.
    """
    if processes <= 1 or len(tasks) <= 1:
        for number, task in enumerate(tasks):
            for report in work(task):
                yield number, report
        return
    pool = _WorkerPool(work, min(processes, len(tasks)))
    try:
        yield from pool.run(tasks)
    finally:
        pool.end()


class _WorkerPool:
    def __init__(self, work: Work, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes = {}
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(os.getpid(), work, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._processes[ours] = process

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        waiting = iter(enumerate(tasks))
        # What each busy worker does.
        busy: dict[Connection, int] = {}
        for connection in self._processes:
            self._give(connection, waiting, busy)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                report = self._receive(ready)
                if isinstance(report, BaseException):
                    raise report
                if not isinstance(report, Done):
                    yield busy[ready], report
                    continue
                del busy[ready]
                self._give(ready, waiting, busy)

    def _give(
        self,
        connection: Connection,
        waiting: Iterator[tuple[int, Task]],
        busy: dict[Connection, int],
    ) -> None:
        for number, task in waiting:
            try:
                connection.send(task)
            except ConnectionError:
                raise self._death_of(connection) from None
            busy[connection] = number
            return

    def _receive(self, connection: Connection) -> Any:
        try:
            return connection.recv()
        except (EOFError, ConnectionError):
            raise self._death_of(connection) from None

    def _death_of(self, connection: Connection) -> Problem:
        process = self._processes[connection]
        process.join()
        code = process.exitcode or 0
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        return Problem(
            f"a worker process ended by {how}. If the system ran out of memory, pass"
            " fewer --processes."
        )

    def end(self) -> None:
        for connection, process in self._processes.items():
            process.kill()
            connection.close()
        for process in self._processes.values():
            process.join()


def _serve(parent: int, work: Work, connection: Connection) -> None:
    """Do the tasks that come, until the other end is closed."""
    _core.die_with_parent(parent)
    # Ctrl-C goes to every process of a terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            for report in work(task):
                connection.send(report)
        except Problem as problem:
            connection.send(problem)
        except Exception as error:
            error.add_note(traceback.format_exc())
            connection.send(error)
        else:
            connection.send(Done())
