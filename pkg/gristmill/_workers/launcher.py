"""Starts workers: the user's side, and the launcher that forks zygotes.

The supervisor (``csrc/core/processes/supervisor.hpp``) starts one launcher per user
process, and another for loaders whose workers want modules that take long to import. A
launcher runs :func:`main`, holds nothing of the user's, and forks one zygote for each
pipeline. A zygote imports and unpickles the pipeline once, then forks its workers
(`gristmill._workers.zygote`). Each ends with its parent, whatever ends that one.
"""

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import warnings
from collections.abc import Sequence

from gristmill import _core
from gristmill._workers.processes import (
    FORGET,
    GONE,
    OPEN_GROUP,
    READY,
    ZYGOTE,
    Children,
    Message,
    lasting_threads,
    leave_signals_to_parent,
    receive,
    send,
    send_failure,
)
from gristmill._workers.zygote import Zygote

# In the user's process.


def configure(entry: str) -> None:
    """Tell the supervisor how to start the launcher of this process.

    The launcher is this interpreter with this one's options, ``sys.path`` and
    environment. To be called before workers are wanted; it costs microseconds.

    Args:
        entry: A module that it imports once for all zygotes; see `setup`.

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
        f"from gristmill._workers.launcher import main; main({entry!r})"
    )
    environ = [name + b"=" + value for name, value in os.environb.items()]
    _core.configure_supervisor([sys.executable, *flags, "-c", bootstrap], environ)
    atexit.unregister(_core.shutdown_supervisor)
    atexit.register(_core.shutdown_supervisor)


def setup(entry: str) -> bytes:
    """Pickle what makes a zygote resemble this process.

    Args:
        entry: The module whose ``load`` and ``serve`` the workers call.
            ``load(blob_fd)`` returns the program. It is called once in the zygote,
            or, where it starts threads, once in each worker, on a descriptor that
            all share: it must not use the file position. ``serve(program, arena_fd,
            slot_request_fd, begun_fd, worker, generation)`` runs a worker until it
            returns, and closes begun_fd after the first output: more may begin.
    """
    like_parent = {
        "entry": entry,
        "pid": os.getpid(),
        "sys_path": _search_path(),
        "cwd": _working_directory(),
        "environ": dict(os.environ),
        "argv": list(getattr(sys, "argv", [""])),
        "affinity": os.sched_getaffinity(0),
    }
    return pickle.dumps(like_parent)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # It was removed; imports by full path still work.
        return "/"


def _search_path() -> list[str]:
    return [str(part) for part in sys.path]  # Some programs insert Paths.


# In the launcher.


def main(entry: str) -> None:
    """Run the launcher: fork zygotes until the supervisor is gone."""
    *modules, fd, parent = sys.argv[1:]
    _core.die_with_parent(int(parent))
    leave_signals_to_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    importlib.import_module(entry)  # Once, and not again in every zygote.
    _import_all(modules)
    gc.freeze()  # What is never looked at is never copied.
    gc.enable()
    os.set_inheritable(int(fd), False)
    supervisor = socket.socket(fileno=int(fd))
    send(supervisor, Message(READY))
    _run(supervisor)


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


def _run(supervisor: socket.socket) -> None:
    """Do what the supervisor says until it is gone."""
    zygotes = Children(supervisor, GONE)
    while True:
        for _ in zygotes.wait():
            received = receive(supervisor)
            if received is None:
                return
            message, fds = received
            if message.kind == OPEN_GROUP:
                _start_zygote(supervisor, zygotes, message, fds)
            elif message.kind == FORGET:
                zygotes.kill(message.group)


def _start_zygote(
    supervisor: socket.socket, zygotes: Children, message: Message, fds: Sequence[int]
) -> None:
    def child() -> None:
        supervisor.close()
        Zygote(message.group, late=bool(message.value), fds=fds).run()

    try:
        zygotes.fork(Message(ZYGOTE, message.group), child)
    except OSError:
        send_failure(supervisor, message.group)
    for fd in fds:
        os.close(fd)
