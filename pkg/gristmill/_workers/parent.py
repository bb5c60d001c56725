"""Starts the launcher of the user's process, and describes that process to workers.

This module imports nothing that only the launcher needs.  The sooner the launcher is
started, the more of its imports run while the user's process does other work.
"""

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import process

from gristmill import _core
from gristmill._base.grain_names import WORKER_NAME
from gristmill._workers import main_module, nesting, settings


def configure(entry: str, more_modules: Sequence[str] = ()) -> None:
    """Set the command with which the supervisor starts the launcher of this process.

    The launcher is the same interpreter with the same options, ``sys.path`` and
    environment. Call this before starting workers; it takes microseconds.

    Args:
        entry: A module that the launcher imports once for all zygotes; see `setup`.
        more_modules: Other modules that the launcher imports.  In a zygote an import
            takes up to three times as long, since a fork copies each page that it
            changes.

    Raises:
        RuntimeError: ``sys.executable`` is empty, as in programs that embed Python.
    """
    if not sys.executable:
        raise RuntimeError(
            "Workers need sys.executable, the path of the Python interpreter, but"
            " sys.executable is empty. Set it, or use worker_count=0."
        )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    bootstrap = (
        f"import gc, sys; gc.disable(); sys.path[:] = {search_path()!r}; "
        "from gristmill._workers.launcher import main; "
        f"main({entry!r}, {[*more_modules]!r})"
    )
    environ = [name + b"=" + value for name, value in os.environb.items()]
    environ.append(f"{nesting.IMPORTING}=1".encode())  # `main` removes it.
    _core.configure_supervisor([sys.executable, *flags, "-c", bootstrap], environ)
    # Registered last, so that it runs before the exit handlers registered until now.
    atexit.unregister(_core.shutdown_supervisor)
    atexit.register(_core.shutdown_supervisor)


def setup(entry: str, main: Sequence[str] = (), *, name: str = WORKER_NAME) -> bytes:
    """Pickle the state of this process that zygotes adopt.

    Args:
        entry: The module whose ``load`` and ``serve`` the workers call.
            ``load(blob_fd)`` returns the program. It is called once in the zygote,
            or, if it starts threads, once in each worker. All share the descriptor, so
            ``load`` must not use the file position. ``serve(program, arena_fd,
            notify_fd, started_fd, worker, generation)`` runs a worker until it
            returns. It closes started_fd after the first output, so that more workers
            may begin. ``run_main(text)`` runs the main program again.
            ``serve`` gets the shared memory, the eventfd that wakes the parent, its end
            of a pipe, the worker's number, and the count of processes that had it.
        main: The `main_module.description` of the main program. If it is empty,
            workers get the `settings` of this process.
        name: The name of the worker processes; ``{}`` is the worker's number.
    """
    state = {
        "entry": entry,
        "name": name,
        "pid": os.getpid(),
        "authkey": bytes(process.current_process().authkey),
        "sys_path": search_path(),
        "cwd": _working_directory(),
        "environ": dict(os.environ),
        "argv": list(getattr(sys, "argv", [""])),
        "affinity": os.sched_getaffinity(0),
        "main": main_module.split_description(main)[0],
        "settings": [] if main else settings.read_settings(),
    }
    return pickle.dumps(state)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # It was removed; imports by full path still work.
        return "/"


def search_path() -> list[str]:
    """Return the folders in which this process looks for modules."""
    return [str(part) for part in sys.path]  # Some programs insert Paths.
