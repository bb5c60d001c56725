"""The process of a pool's server: its start, and its main function."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence

from gristmill._base import log
from gristmill._engine.stream import PROGRAM_MODULES
from gristmill._host.address import Address
from gristmill._workers import main_module, nesting, parent
from gristmill._workers.processes import leave_signals_to_parent

# The module that the zygote imports before it loads the program.
ENTRY = "gristmill._engine.worker"


def connect_or_start(address: Address) -> socket.socket | None:
    """Connect to the server of a pool, or start one.

    Returns:
        The connection; None if another process is about to start a server.
    """
    control = address.connect()
    if control is not None:
        return control
    listener = address.listen()
    if listener is None:
        return None
    with listener:
        # Connect before the server runs: it ends if this process ends.
        control = address.connect()
        try:
            _start_server(address.name, listener)
        except BaseException:
            if control is not None:
                control.close()
            raise
    return control


def _start_server(name: str, listener: socket.socket) -> None:
    """Start a server that is not a child of this process.

    Args:
        name: The name of the pool.
        listener: The socket that listens at the address of the pool.
    """
    nesting.check_may_start_workers()
    main = main_module.description()
    state = os.memfd_create("gristmill-state", os.MFD_CLOEXEC)
    try:
        with open(state, "wb", closefd=False) as file:
            file.write(parent.setup(ENTRY, main))
        fds = listener.fileno(), state
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        # The first process ends at once, so that the server has no parent.
        bootstrap = (
            "import gc, os, sys\n"
            "if os.fork(): os._exit(0)\n"
            "gc.disable()\n"
            f"sys.path[:] = {parent.search_path()!r}\n"
            "from gristmill._host.server_process import run_server\n"
            f"run_server({name!r}, *{fds!r}, {PROGRAM_MODULES!r})"
        )
        subprocess.run(
            [sys.executable, *flags, "-c", bootstrap],
            check=True,
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, nesting.IMPORTING: "1"},
        )
    finally:
        os.close(state)


def run_server(
    name: str, listener_fd: int, state_fd: int, more_modules: Sequence[str]
) -> None:
    """Run the server in a process of its own.

    Args:
        name: The name of the pool.
        listener_fd: The socket that listens at the address of the pool.
        state_fd: The file with the pickled state of the rank; see `parent.setup`.
        more_modules: The modules to import before the zygote is forked.
    """
    nesting.become_worker()
    leave_signals_to_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    with open(state_fd, "rb") as file:
        file.seek(0)
        state = pickle.load(file)
    # Each lane of each rank has a connection.  The zygote restores the limit, since
    # `select` in users' code takes descriptors below 1024 only.
    state["file_limit"] = limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    from gristmill._host.server import Server  # Ranks do not need it.

    for module in more_modules:
        # The zygote imports it again and reports the error.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()  # The collector does not touch frozen objects, so forks share them.
    gc.enable()  # The command has disabled it.
    listener = socket.socket(fileno=listener_fd)
    try:
        Server(Address(name), listener, state).run()
    except Exception:
        log.error("The pool %r failed:\n%s", name, traceback.format_exc())
        raise
