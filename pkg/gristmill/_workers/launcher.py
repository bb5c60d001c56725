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
import traceback
import types
import warnings
from collections.abc import Sequence
from multiprocessing import process

from gristmill import _core
from gristmill._base import log
from gristmill._base.grain_names import WORKER_NAME
from gristmill._workers import main_module, nesting, settings
from gristmill._workers.processes import (
    FORGET,
    GONE,
    INHERIT,
    OPEN_GROUP,
    READY,
    ZYGOTE,
    Children,
    Message,
    lasting_threads,
    leave_signals_to_parent,
    look_like_worker,
    receive,
    send,
    send_failure,
)
from gristmill._workers.zygote import Zygote

# What a launcher gets in place of a main program whose top level starts threads.
_RUN_BY_EACH = "main program for each worker"

# In the user's process.


def configure(entry: str, also: Sequence[str] = ()) -> None:
    """Tell the supervisor how to start the launcher of this process.

    The launcher is this interpreter with this one's options, ``sys.path`` and
    environment. To be called before workers are wanted; it costs microseconds.

    Args:
        entry: A module that it imports once for all zygotes; see `setup`.
        also: More modules that it imports.  In a zygote an import takes up to three
            times as long, since a fork copies each page that it changes.

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
        f"from gristmill._workers.launcher import main; main({entry!r}, {[*also]!r})"
    )
    environ = [name + b"=" + value for name, value in os.environb.items()]
    environ.append(f"{nesting.IMPORTING}=1".encode())  # Until `main` has imported all.
    _core.configure_supervisor([sys.executable, *flags, "-c", bootstrap], environ)
    atexit.unregister(_core.shutdown_supervisor)
    atexit.register(_core.shutdown_supervisor)


def setup(entry: str, main: Sequence[str] = (), *, name: str = WORKER_NAME) -> bytes:
    """Pickle what makes a zygote resemble this process.

    Args:
        entry: The module whose ``load`` and ``serve`` the workers call.
            ``load(blob_fd)`` returns the program. It is called once in the zygote,
            or, where it starts threads, once in each worker, on a descriptor that
            all share: it must not use the file position. ``serve(program, arena_fd,
            slot_request_fd, begun_fd, worker, generation)`` runs a worker until it
            returns, and closes begun_fd after the first output: more may begin.
            ``run_main(text)`` runs the main program again.
        main: The `main_module.description` of the main program. Workers get the
            `settings` of this process if it is empty.
        name: Name of the worker processes; ``{}`` is the worker's number.
    """
    like_parent = {
        "entry": entry,
        "name": name,
        "pid": os.getpid(),
        "authkey": bytes(process.current_process().authkey),
        "sys_path": _search_path(),
        "cwd": _working_directory(),
        "environ": dict(os.environ),
        "argv": list(getattr(sys, "argv", [""])),
        "affinity": os.sched_getaffinity(0),
        "main": main_module.parted(main)[0],
        "settings": [] if main else settings.present(),
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


def main(entry: str, also: Sequence[str]) -> None:
    """Run the launcher: fork zygotes until the supervisor is gone."""
    *wanted, fd, parent = sys.argv[1:]
    _core.die_with_parent(int(parent))
    nesting.become_worker()
    look_like_worker("GristmillWorker", int(parent))
    leave_signals_to_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    module = importlib.import_module(entry)  # Once, and not again in every zygote.
    for name in also:
        importlib.import_module(name)
    outcome = _import_all(module, wanted)
    os.environ.pop(nesting.IMPORTING, None)
    gc.freeze()  # What is never looked at is never copied.
    gc.enable()
    os.set_inheritable(int(fd), False)
    supervisor = socket.socket(fileno=int(fd))
    send(supervisor, Message(READY))
    _run(supervisor, outcome)


def _import_all(entry: types.ModuleType, wanted: Sequence[str]) -> main_module.Outcome:
    """Run the main program and import modules; start again without them on threads."""
    if wanted == [_RUN_BY_EACH]:
        return main_module.Outcome(by_each=True)
    main, modules = main_module.parted(wanted)
    failure = ""
    if main:
        try:
            entry.run_main(main)
        except BaseException:
            failure = traceback.format_exc()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The user's process has shown them.
        for module in modules:
            # The zygote that needs it tries again, and says why it cannot.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
    if wanted and (threads := lasting_threads()):
        if main:
            log.warning(
                "the top level of the main program starts %d thread(s), which no fork"
                " copies: each worker runs it for itself, which takes more time and"
                ' memory. Start threads behind `if __name__ == "__main__":` to avoid'
                " this.",
                threads,
            )
        command = sys.orig_argv
        again = [_RUN_BY_EACH] if main else []
        rest = [*command[: -2 - len(wanted)], *again, *command[-2:]]
        os.execv(sys.executable, rest)
    return main_module.Outcome(failure=failure)


def _run(supervisor: socket.socket, main: main_module.Outcome) -> None:
    """Do what the supervisor says until it is gone."""
    zygotes = Children(supervisor, GONE)
    inherited: list[int] = []  # Of the group that is opened next.
    while True:
        for _ in zygotes.wait():
            received = receive(supervisor)
            if received is None:
                return
            message, fds = received
            if message.kind == INHERIT:
                inherited += fds
            elif message.kind == OPEN_GROUP:
                _start_zygote(supervisor, zygotes, main, message, [*fds, *inherited])
                inherited.clear()
            elif message.kind == FORGET:
                zygotes.kill(message.group)


def _start_zygote(
    supervisor: socket.socket,
    zygotes: Children,
    main: main_module.Outcome,
    message: Message,
    fds: Sequence[int],
) -> None:
    def child() -> None:
        supervisor.close()
        Zygote(message.group, late=bool(message.value), main=main, fds=fds).run()

    try:
        zygotes.fork(Message(ZYGOTE, message.group), child)
    except OSError:
        send_failure(supervisor, message.group, traceback.format_exc())
    for fd in fds:
        os.close(fd)
