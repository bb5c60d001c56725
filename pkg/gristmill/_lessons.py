"""What zygotes had to import, which the launcher then has for the next ones.

A dataset or a trainer's function may need modules that take seconds to import. A zygote
that has imported some tells the launcher their names, and the launcher imports them,
too, so that only the first crews wait for them.
"""

import contextlib
import functools
import gc
import importlib
import importlib.machinery
import os
import socket
import sys
import sysconfig
import warnings
from collections.abc import Iterator

# What is imported in less is not worth a message.
WORTH_S = 0.02
_MOST_BYTES = 100_000


class Lessons:
    """Carries names of modules from zygotes to the launcher that forks them."""

    def __init__(self) -> None:
        kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        self._launchers, self._zygotes = socket.socketpair(socket.AF_UNIX, kind)

    def fileno(self) -> int:
        """Readable when there is a lesson."""
        return self._launchers.fileno()

    def fds(self) -> tuple[int, int]:
        """All descriptors held here."""
        return self._launchers.fileno(), self._zygotes.fileno()

    def teach(self, before: set[str]) -> None:
        """In a zygote: tell what was imported since `before`."""
        names = "\n".join(name for name in sys.modules if name not in before)
        # One that is lost is learned from the next zygote.
        with contextlib.suppress(OSError):
            self._zygotes.send(names.encode()[:_MOST_BYTES])

    def close(self) -> None:
        """In a zygote: nothing more will be told."""
        self._launchers.close()
        self._zygotes.close()

    def learn(self) -> Iterator[None]:
        """In the launcher: import what a zygote told of, a module with each step."""
        with contextlib.suppress(OSError):
            names = self._launchers.recv(_MOST_BYTES).decode(errors="replace")
            return _imports(names.split("\n"))
        return iter(())


def _imports(names: list[str]) -> Iterator[None]:
    for name in names:
        if name not in sys.modules and _is_installed(name.partition(".")[0]):
            with warnings.catch_warnings(), contextlib.suppress(Exception):
                warnings.simplefilter("ignore")  # The user's process has shown them.
                importlib.import_module(name)
        yield
    gc.freeze()  # What is never looked at is never copied.


@functools.cache
def _is_installed(package: str) -> bool:
    try:
        spec = importlib.machinery.PathFinder.find_spec(package)
    except Exception:
        return False
    return spec is not None and is_installed(spec.origin or "")


def is_installed(path: str) -> bool:
    """Whether a module's file stays what it is, unlike the user's own files."""
    return path.startswith(_homes())


@functools.cache
def _homes() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[key] + os.sep for key in ("stdlib", "purelib", "platlib"))
