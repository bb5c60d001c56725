"""The launcher: forks zygotes, which fork workers.

The supervisor (``csrc/core/processes/supervisor.hpp``) starts one launcher per user
process, and another for loaders whose workers want modules that take long to import. A
launcher runs :func:`main`, holds nothing of the user's, and forks one zygote for each
pipeline. A zygote imports and unpickles the pipeline once, then forks its workers
(`gristmill._workers.zygote`). Each ends with its parent, whatever ends that one.
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

# What a launcher gets in place of a main program whose top level starts threads.
_RUN_BY_EACH = "main program for each worker"


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
    # NumPy has started them, by OpenBLAS: no fork has to show that they are harmless.
    of_numpy = other_threads()
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
    if wanted and (threads := lasting_threads(of_numpy)):
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
