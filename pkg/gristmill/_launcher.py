"""Starts workers: the user's side, and the launcher that forks zygotes.

The supervisor (``csrc/core/supervise.hpp``) starts one launcher per user process, and
another for loaders whose workers want modules that take long to import. A launcher
runs :func:`main`, holds nothing of the user's, and forks one zygote for each
pipeline. A zygote imports and unpickles the pipeline once, then forks its workers
(`gristmill._zygote`); one that is wanted again is kept loaded
(`gristmill._templates`). Each ends with its parent, whatever ends that one.
"""

import atexit
import contextlib
import gc
import importlib
import itertools
import os
import select
import signal
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill import _core
from gristmill._lessons import Lessons
from gristmill._processes import (
    ENLIST,
    FORGET,
    READY,
    Message,
    lasting_threads,
    receive,
    send,
    send_failure,
)
from gristmill._setup import Setup
from gristmill._templates import Templates
from gristmill._zygote import Zygote
from gristmill._zygotes import Zygotes

ENTRY = "gristmill._engine.worker"
# What workers of the torch front end find imported.
FOR_TORCH = (
    "torch",
    "gristmill._torch.fetching",
    "gristmill._torch.stateful_fetching",
    "gristmill._torch.carrying",
    "gristmill._torch.native",
)

# A launcher that heard nothing for so long has time for chores.
_IDLE_MS = 200

# Whether this is a launcher, or forked by one.
_below_supervisor = False


# In the user's process.


def configure() -> None:
    """Tell the supervisor how to start the launcher of this process.

    The launcher is this interpreter with this one's options, ``sys.path`` and
    environment. To be called before a crew is enlisted; it costs microseconds.

    Raises:
        RuntimeError: ``sys.executable`` names no interpreter, as in programs that
            embed Python.
    """
    import subprocess  # The launcher itself does without it.

    if not sys.executable:
        raise RuntimeError(
            "worker processes need a Python interpreter, but sys.executable is "
            "empty: set it, or use no workers"
        )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    bootstrap = (
        f"import gc, sys; gc.disable(); sys.path[:] = {_search_path()!r}; "
        "from gristmill._launcher import main; main()"
    )
    environ = [name + b"=" + value for name, value in os.environb.items()]
    _core.configure_supervisor([sys.executable, *flags, "-c", bootstrap], environ)
    atexit.unregister(_core.shutdown_supervisor)
    atexit.register(_core.shutdown_supervisor)


def start_early(modules: Sequence[str]) -> None:
    """Start the launcher for crews that want `modules`, and do not wait for it.

    To be called by what imports them itself, so that the launcher imports while the
    program does other things, and the first zygote is a fork that has them. A module
    that cannot be imported is left to the zygote, which says what is wrong. Costs
    some milliseconds and starts no thread in this process.

    Does nothing where ``GRISTMILL_EARLY_LAUNCHER`` is 0 (the launcher holds its own
    copy of what it imports, about 250 MB for torch), nor in worker processes, the
    engine's and those of `multiprocessing`.
    """
    if os.environ.get("GRISTMILL_EARLY_LAUNCHER") == "0" or _is_worker():
        return
    # Where it does not start, the first crew tries again and says why.
    with contextlib.suppress(RuntimeError, OSError):
        configure()
        _core.start_launcher(modules)


def _is_worker() -> bool:
    started = sys.modules.get("multiprocessing.process")
    return _below_supervisor or (
        started is not None and started.parent_process() is not None
    )


def setup(entry: str = ENTRY, parameters: dict[str, Any] | None = None) -> bytes:
    """Pickle what makes a zygote resemble this process.

    Args:
        entry: The module whose ``load`` and ``serve`` the workers call.
            ``load(blob_fd)`` returns the program. It is called once in the zygote,
            or, where it starts threads, once in each worker, on a descriptor that
            all share: it must not use the file position. ``serve(program, arena_fd,
            knock_fd, begun_fd, worker, generation)`` runs a worker until it returns,
            and closes begun_fd after the first output: more workers may begin.
        parameters: What this crew's program differs in from that of another one, by
            ``program.adapted(**parameters)``, so that it can be loaded once for both;
            see `gristmill._templates`.  None: it is loaded for each.
    """
    cwd, directory = _working_directory()
    like_parent = {
        "entry": entry,
        "sys_path": _search_path(),
        "cwd": cwd,
        "directory": directory,
        "environ": dict(os.environ),
        "argv": list(getattr(sys, "argv", [""])),
        "affinity": os.sched_getaffinity(0),
    }
    return Setup.pack(like_parent, parameters)


def _working_directory() -> tuple[str, tuple[int, ...]]:
    """Its path, and what tells it from a later one of this path."""
    try:
        status = os.stat(".")
        return os.getcwd(), (status.st_dev, status.st_ino)
    except FileNotFoundError:  # It was removed; imports by full path still work.
        return "/", ()


def _search_path() -> list[str]:
    return [str(part) for part in sys.path]  # Some programs insert Paths.


# In the launcher.


def main() -> None:
    """Run the launcher: fork a zygote for each crew until the supervisor is gone."""
    global _below_supervisor
    _below_supervisor = True
    *modules, fd, parent = sys.argv[1:]
    _core.die_with_parent(int(parent))
    _leave_signals_to_parent()
    importlib.import_module(ENTRY)  # Once, and not again in every zygote.
    _import_all(modules)
    gc.freeze()  # What is never looked at is never copied.
    gc.enable()
    os.set_inheritable(int(fd), False)
    supervisor = socket.socket(fileno=int(fd))
    send(supervisor, Message(READY))
    _Launcher(supervisor, _gather_memory() if modules else iter(())).run()


def _import_all(modules: Sequence[str]) -> None:
    """Import modules; begin anew without them if they start threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The user's process has shown them.
        for module in modules:
            # The zygote that needs it tries again, and says why it cannot.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
    if modules and lasting_threads():
        command = sys.orig_argv
        os.execv(sys.executable, [*command[: -2 - len(modules)], *command[-2:]])


def _gather_memory() -> Iterator[None]:
    """Move this process's memory into huge pages, a little with each step.

    A fork copies the entries of the page table, which is most of what it costs where
    torch is imported. Steps take milliseconds.
    """
    size = _core.HUGE_PAGE_BYTES
    with open("/proc/self/maps") as file:
        lines = file.readlines()
    for line in lines:
        addresses, access, _, _, inode, *name = line.split()
        if access != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        first, last = (int(address, 16) for address in addresses.split("-"))
        for page in range(-(-first // size) * size, last - size + 1, size):
            _core.to_huge_page(page)
            yield


class _Launcher:
    """Does what the supervisor says, and chores while it says nothing."""

    def __init__(self, supervisor: socket.socket, chores: Iterator[None]) -> None:
        self._supervisor = supervisor
        self._chores = chores
        # None: there are none.
        self._idle_ms: int | None = _IDLE_MS
        self._lessons = Lessons()
        self._poll = select.poll()
        self._zygotes = Zygotes(supervisor, self._poll)
        self._templates = Templates(supervisor, self._poll)

    def run(self) -> None:
        """Fork zygotes until the supervisor is gone."""
        for source in (self._supervisor, self._lessons):
            self._poll.register(source, select.POLLIN)
        supervisor = self._supervisor.fileno()
        while True:
            ready = {fd for fd, _ in self._next_events()}
            for fd in ready - {supervisor}:
                self._see_to(fd)
            # Last, since it may have others' descriptors closed.
            if supervisor in ready and not self._obey():
                return

    def _next_events(self) -> list[tuple[int, int]]:
        if self._idle_ms is None:
            self._templates.expire()
            return self._poll.poll(self._templates.patience_ms())
        events = self._poll.poll(self._idle_ms)
        if events:
            self._idle_ms = _IDLE_MS
        else:
            self._idle_ms = 0 if next(self._chores, self) is None else None
        return events

    def _see_to(self, ready: int) -> None:
        """Deal with what can be read from others than the supervisor."""
        if ready == self._lessons.fileno():
            # At once: the next crew would have to import the same.
            self._chores = itertools.chain(self._lessons.learn(), self._chores)
            self._idle_ms = 0
        elif ready in self._zygotes.fds():
            self._zygotes.bury(ready)
        else:
            for message, fds in self._templates.see_to(ready):
                self._start_zygote(message, fds)

    def _obey(self) -> bool:
        """Do what the supervisor says; False if it is gone."""
        received = receive(self._supervisor)
        if received is None:
            return False
        message, fds = received
        if message.kind == ENLIST:
            self._enlist(message, fds)
        elif message.kind == FORGET:
            self._templates.forget(message)
            self._zygotes.kill(message.crew)
        return True

    def _enlist(self, message: Message, fds: Sequence[int]) -> None:
        others = [*self._others(), *self._lessons.fds()]
        with contextlib.suppress(OSError):  # A zygote alone takes fewer descriptors.
            if self._templates.enlist(message, fds, others):
                return
        self._start_zygote(message, fds)

    def _others(self) -> list[int]:
        """Descriptors that are no business of a child's."""
        held = [*self._zygotes.fds(), *self._templates.fds()]
        return [self._supervisor.fileno(), *held]

    def _start_zygote(self, message: Message, fds: Sequence[int]) -> None:
        """Fork a zygote and tell the supervisor."""
        others = self._others()

        def child() -> None:
            for other in others:
                os.close(other)
            self._supervisor.detach()
            late = bool(message.value)
            Zygote(message.crew, late=late, fds=fds).run(self._lessons)

        try:
            self._zygotes.fork(message.crew, child)
        except OSError:
            send_failure(self._supervisor, message.crew)
        for fd in fds:
            os.close(fd)


def _leave_signals_to_parent() -> None:
    """Ignore Ctrl-C and termination, which are sent to whole process groups.

    A handler that does nothing, since programs that a worker runs would inherit
    SIG_IGN. The supervisor blocked both until here.
    """
    both = (signal.SIGINT, signal.SIGTERM)
    for number in both:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
