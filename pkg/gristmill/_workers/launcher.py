"""The launcher: forks zygotes, which fork workers.

The supervisor (``csrc/core/processes/supervisor.hpp``) starts one launcher per user
process, and another for loaders whose workers need modules that take long to import. A
launcher runs :func:`main`, contains no objects of the user, and forks one zygote for
each pipeline. A zygote imports and unpickles the pipeline once, then forks its workers
(`gristmill._workers.zygote`). Each process ends when its parent ends, for any reason.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
import types
import warnings
from collections.abc import Sequence

from gristmill import _core
from gristmill._base import log
from gristmill._workers import main_module, nesting
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
    other_threads,
    receive,
    send,
    send_failure,
)
from gristmill._workers.zygote import Zygote

# Passed to a launcher instead of a main program whose top level starts threads.
_RUN_IN_WORKERS = "main program for each worker"


def main(entry: str, more_modules: Sequence[str]) -> None:
    """Run the launcher: fork zygotes until the supervisor is gone.

    Args:
        entry: The module that workers run; see `parent.setup`.
        more_modules: Other modules to import before the forks.

    The arguments of the command are the modules, and the parts of the main program's
    description, that workers need.  Its last two are the descriptor of the supervisor's
    socket and the pid of the user's process.
    """
    *arguments, fd, parent = sys.argv[1:]
    _core.die_with_parent(int(parent))
    nesting.become_worker()
    look_like_worker("GristmillWorker", int(parent))
    leave_signals_to_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    module = importlib.import_module(entry)  # Once, instead of in every zygote.
    for name in more_modules:
        importlib.import_module(name)
    outcome = _import_all(module, arguments)
    os.environ.pop(nesting.IMPORTING, None)  # Set by `parent.configure`.
    gc.freeze()  # The collector does not touch frozen objects, so forks share them.
    gc.enable()
    os.set_inheritable(int(fd), False)
    supervisor = socket.socket(fileno=int(fd))
    send(supervisor, Message(READY))
    _run(supervisor, outcome)


def _import_all(
    entry: types.ModuleType, arguments: Sequence[str]
) -> main_module.Outcome:
    """Run the main program and import modules.

    If that starts threads, replace this process by a launcher without them.
    """
    if arguments == [_RUN_IN_WORKERS]:
        return main_module.Outcome(in_workers=True)
    main, modules = main_module.split_description(arguments)
    # NumPy's OpenBLAS has started these threads.  They are known to be harmless, so no
    # fork is needed to check.
    numpy_threads = other_threads()
    failure = ""
    if main:
        try:
            entry.run_main(main)
        except BaseException:
            failure = traceback.format_exc()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The user's process has shown them.
        for module in modules:
            # The zygote that needs the module imports it again and reports the error.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
    if arguments and (threads := lasting_threads(numpy_threads)):
        if main:
            log.warning(
                "the top level of the main program starts %d thread(s), which no fork"
                " copies: each worker runs it for itself, which takes more time and"
                ' memory. Start threads under `if __name__ == "__main__":` to avoid'
                " this.",
                threads,
            )
        # Without the user's modules, but with the descriptor and the pid at the end.
        command = sys.orig_argv
        main_argument = [_RUN_IN_WORKERS] if main else []
        new_command = [*command[: -2 - len(arguments)], *main_argument, *command[-2:]]
        os.execv(sys.executable, new_command)
    return main_module.Outcome(failure=failure)


def _run(supervisor: socket.socket, main: main_module.Outcome) -> None:
    """Handle the supervisor's messages until it is gone."""
    zygotes = Children(supervisor, GONE)
    inherited_fds: list[int] = []  # The descriptors for the group that is opened next.
    while True:
        for _ in zygotes.wait():  # Only the supervisor's socket.
            received = receive(supervisor)
            if received is None:
                return
            message, fds = received
            if message.kind == INHERIT:
                inherited_fds += fds
            elif message.kind == OPEN_GROUP:
                all_fds = [*fds, *inherited_fds]
                _start_zygote(supervisor, zygotes, main, message, all_fds)
                inherited_fds.clear()
            elif message.kind == FORGET:
                zygotes.kill(message.group)


def _start_zygote(
    supervisor: socket.socket,
    zygotes: Children,
    main: main_module.Outcome,
    message: Message,
    fds: Sequence[int],
) -> None:
    """Fork the zygote of the group in a message; close its descriptors here.

    `message.value` is 1 if each worker loads the program, else 0.
    """

    def run_zygote() -> None:
        supervisor.close()
        Zygote(
            message.group, loads_in_workers=bool(message.value), main=main, fds=fds
        ).run()

    try:
        zygotes.fork(Message(ZYGOTE, message.group), run_zygote)
    except OSError:
        send_failure(supervisor, message.group, traceback.format_exc())
    for fd in fds:
        os.close(fd)
