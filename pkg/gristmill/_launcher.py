"""Starts workers: the user's side, and the launcher that forks zygotes.

The supervisor (``csrc/core/supervise.hpp``) starts one launcher per user process, and
another for loaders whose workers want modules that take long to import. A launcher
runs :func:`main`, holds nothing of the user's, and forks one zygote for each
pipeline. A zygote imports and unpickles the pipeline once, then forks its workers
(`gristmill._zygote`). Each ends with its parent, whatever ends that one.
"""

import atexit
import contextlib
import gc
import importlib
import itertools
import os
import pickle
import select
import signal
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence

from gristmill import _core
from gristmill._lessons import Lessons
from gristmill._processes import (
    ENLIST,
    FORGET,
    GONE,
    READY,
    ZYGOTE,
    Message,
    fork,
    lasting_threads,
    reap,
    receive,
    send,
    send_failure,
)
from gristmill._zygote import Zygote

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


def setup(entry: str = ENTRY) -> bytes:
    """Pickle what makes a zygote resemble this process.

    Args:
        entry: The module whose ``load`` and ``serve`` the workers call.
            ``load(blob_fd)`` returns the program. It is called once in the zygote,
            or, where it starts threads, once in each worker, on a descriptor that
            all share: it must not use the file position. ``serve(program, arena_fd,
            knock_fd, begun_fd, worker, generation)`` runs a worker until it returns,
            and closes begun_fd after the first output: more workers may begin.
    """
    try:
        cwd = os.getcwd()
    except FileNotFoundError:  # It was removed; imports by full path still work.
        cwd = "/"
    return pickle.dumps(
        {
            "entry": entry,
            "sys_path": _search_path(),
            "cwd": cwd,
            "environ": dict(os.environ),
            "argv": list(getattr(sys, "argv", [""])),
            "affinity": os.sched_getaffinity(0),
        }
    )


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
    _fork_zygotes(supervisor, _gather_memory() if modules else iter(()))


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


def _fork_zygotes(supervisor: socket.socket, chores: Iterator[None]) -> None:
    """Do what the supervisor says, and chores while it says nothing."""
    idle_ms: int | None = _IDLE_MS
    lessons = Lessons()
    zygotes: dict[int, tuple[int, int]] = {}  # pidfd: crew, pid
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.register(lessons, select.POLLIN)
    while True:
        events = poll.poll(idle_ms)
        if not events:
            idle_ms = 0 if next(chores, chores) is None else None
        elif idle_ms is not None:
            idle_ms = _IDLE_MS
        for ready, _ in events:
            if ready == lessons.fileno():
                # At once: the next crew would have to import the same.
                chores = itertools.chain(lessons.learn(), chores)
                idle_ms = 0
                continue
            if ready in zygotes:
                poll.unregister(ready)
                crew, pid = zygotes.pop(ready)
                send(supervisor, Message(GONE, crew, value=reap(pid)))
                os.close(ready)
                continue
            received = receive(supervisor)
            if received is None:
                return
            message, fds = received
            if message.kind == ENLIST:
                pidfd = _start_zygote(supervisor, zygotes, message, fds, lessons)
                if pidfd >= 0:
                    poll.register(pidfd, select.POLLIN)
            elif message.kind == FORGET:
                for pidfd, (crew, _) in zygotes.items():
                    if crew == message.crew:
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _start_zygote(
    supervisor: socket.socket,
    zygotes: dict[int, tuple[int, int]],
    message: Message,
    fds: Sequence[int],
    lessons: Lessons,
) -> int:
    """Fork a zygote and tell the supervisor; return its pidfd, or -1."""

    def child() -> None:
        supervisor.close()
        for other in zygotes:
            os.close(other)
        late = bool(message.value)
        Zygote(message.crew, late=late, fds=fds, lessons=lessons).run()

    pidfd = -1
    try:
        pid, pidfd = fork(child)
        zygotes[pidfd] = message.crew, pid
        send(supervisor, Message(ZYGOTE, message.crew, value=pid), pidfd)
    except OSError:
        send_failure(supervisor, message.crew)
    for fd in fds:
        os.close(fd)
    return pidfd


def _leave_signals_to_parent() -> None:
    """Ignore Ctrl-C and termination, which are sent to whole process groups.

    A handler that does nothing, since programs that a worker runs would inherit
    SIG_IGN. The supervisor blocked both until here.
    """
    both = (signal.SIGINT, signal.SIGTERM)
    for number in both:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
