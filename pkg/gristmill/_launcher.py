"""The processes under the supervisor: launcher, zygotes and workers.

The supervisor (``csrc/core/supervise.hpp``) starts one launcher per user process, and
another for loaders whose workers want modules that take long to import. A launcher
runs :func:`main`, holds nothing of the user's, and forks one zygote for each
pipeline. A zygote imports and unpickles the pipeline once, then forks its workers.
Each ends with its parent, whatever ends that one.

``csrc/core/spawn.hpp`` has the table of the messages that are read and sent here.
"""

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gristmill import _core

ENTRY = "gristmill._engine.worker"
# What workers of the torch front end find imported.
FOR_TORCH = ("torch", "gristmill._torch.fetching")

_ENLIST, _FORGET, _ZYGOTE, _GONE, _HIRE, _BORN, _DIED, _THREADS, _FAILED, _READY = (
    range(1, 11)
)
_MESSAGE = struct.Struct("<IIiIi")
_MOST_FDS = 8
# A launcher that heard nothing for so long has time for chores.
_IDLE_MS = 200


class _Message(NamedTuple):
    kind: int
    crew: int = 0
    worker: int = 0
    generation: int = 0
    value: int = 0


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
        f"import sys; sys.path[:] = {_search_path()!r}; "
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
            knock_fd, worker, generation)`` runs a worker until it returns.
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
    gc.collect()
    gc.freeze()  # What is never looked at is never copied.
    os.set_inheritable(int(fd), False)
    supervisor = socket.socket(fileno=int(fd))
    _send(supervisor, _Message(_READY))
    _fork_zygotes(supervisor, _gather_memory() if modules else iter(()))


def _import_all(modules: Sequence[str]) -> None:
    """Import modules; begin anew without them if they start threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The user's process has shown them.
        for module in modules:
            # The zygote that needs it tries again, and says why it cannot.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
    if modules and _lasting_threads():
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
    zygotes: dict[int, tuple[int, int]] = {}  # pidfd: crew, pid
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    while True:
        events = poll.poll(idle_ms)
        if not events:
            idle_ms = 0 if next(chores, chores) is None else None
        elif idle_ms is not None:
            idle_ms = _IDLE_MS
        for ready, _ in events:
            if ready in zygotes:
                poll.unregister(ready)
                crew, pid = zygotes.pop(ready)
                _send(supervisor, _Message(_GONE, crew, value=_reap(pid)))
                os.close(ready)
                continue
            received = _receive(supervisor)
            if received is None:
                return
            message, fds = received
            if message.kind == _ENLIST:
                pidfd = _start_zygote(supervisor, zygotes, message, fds)
                if pidfd >= 0:
                    poll.register(pidfd, select.POLLIN)
            elif message.kind == _FORGET:
                for pidfd, (crew, _) in zygotes.items():
                    if crew == message.crew:
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _start_zygote(
    supervisor: socket.socket,
    zygotes: dict[int, tuple[int, int]],
    message: _Message,
    fds: Sequence[int],
) -> int:
    """Fork a zygote and tell the supervisor; return its pidfd, or -1."""

    def child() -> None:
        supervisor.close()
        for other in zygotes:
            os.close(other)
        _Zygote(message.crew, late=bool(message.value), fds=fds).run()

    pidfd = -1
    try:
        pid, pidfd = _fork(child)
        zygotes[pidfd] = message.crew, pid
        _send(supervisor, _Message(_ZYGOTE, message.crew, value=pid), pidfd)
    except OSError:
        _send_failure(supervisor, message.crew)
    for fd in fds:
        os.close(fd)
    return pidfd


# In a zygote and its workers.


class _Zygote:
    """Holds a loaded program and forks it."""

    def __init__(self, crew: int, *, late: bool, fds: Sequence[int]) -> None:
        self._crew = crew
        self._late = late
        self._supervisor = socket.socket(fileno=fds[0])
        self._setup_fd, self._blob_fd, self._arena_fd, self._knock_fd = fds[1:]
        self._workers: dict[int, tuple[int, int, int]] = {}  # pidfd: see _hire
        self._entry: types.ModuleType
        self._program: Any = None

    def run(self) -> None:
        try:
            self._entry = self._become_like_parent()
            if not self._late:
                self._program = self._entry.load(self._blob_fd)
        except BaseException:
            _send_failure(self._supervisor, self._crew)
            return
        if not self._late and (threads := _lasting_threads()):
            _warn_of_threads(threads)
            _send(self._supervisor, _Message(_THREADS))
            return
        gc.collect()
        gc.freeze()  # As the launcher did.
        try:
            self._serve_supervisor()
        except OSError:
            _send_failure(self._supervisor, self._crew)

    def _become_like_parent(self) -> types.ModuleType:
        size = os.fstat(self._setup_fd).st_size
        wanted = pickle.loads(os.pread(self._setup_fd, size, 0))
        os.close(self._setup_fd)
        os.environ.clear()
        os.environ.update(wanted["environ"])
        sys.path[:] = wanted["sys_path"]
        sys.argv[:] = wanted["argv"]
        os.chdir(wanted["cwd"])
        return importlib.import_module(wanted["entry"])

    def _serve_supervisor(self) -> None:
        poll = select.poll()
        poll.register(self._supervisor, select.POLLIN)
        while True:
            for ready, _ in poll.poll():
                if ready in self._workers:
                    poll.unregister(ready)
                    worker, generation, pid = self._workers.pop(ready)
                    died = _Message(_DIED, 0, worker, generation, _reap(pid))
                    _send(self._supervisor, died)
                    os.close(ready)
                    continue
                received = _receive(self._supervisor)
                if received is None:
                    return
                poll.register(self._hire(received[0]), select.POLLIN)

    def _hire(self, wanted: _Message) -> int:
        """Fork a worker, tell the supervisor, and return the worker's pidfd."""
        pid, pidfd = _fork(lambda: self._work(wanted.worker, wanted.generation))
        self._workers[pidfd] = wanted.worker, wanted.generation, pid
        _send(self._supervisor, wanted._replace(kind=_BORN, value=pid), pidfd)
        return pidfd

    def _work(self, worker: int, generation: int) -> None:
        for sibling in self._workers:
            os.close(sibling)
        if self._late:
            try:
                self._program = self._entry.load(self._blob_fd)
            except BaseException:
                _send_failure(self._supervisor, self._crew)
                return
        self._supervisor.close()
        # Python reseeds its own generator in every fork.
        if random := sys.modules.get("numpy.random"):
            random.seed()
        self._entry.serve(
            self._program, self._arena_fd, self._knock_fd, worker, generation
        )


def _lasting_threads() -> int:
    """Count the threads, besides this one, that a fork would lose.

    Those of OpenBLAS do not count: it ends them before a fork and starts new ones
    on both sides. So a fork that does nothing shows which are left. Nor does that of
    jemalloc, which pyarrow brings: a fork takes its locks, and the child frees memory
    without it.
    """
    if _other_threads():
        pid = _quiet_fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    # A thread that was joined may be listed for a moment longer.
    deadline = time.monotonic() + 0.05
    while (count := _other_threads()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return count


def _other_threads() -> int:
    count = -1
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as name:
                count += name.read() != "jemalloc_bg_thd\n"
        except OSError:
            continue  # It has ended.
    return count


def _warn_of_threads(count: int) -> None:
    import logging  # Rarely needed, and slow to import.

    logging.getLogger("gristmill").warning(
        "unpickling the pipeline started %d thread(s), which no fork copies: each "
        "worker unpickles it for itself, which takes more time and memory. Start "
        "threads on first use instead of on import to avoid this.",
        count,
    )


# In all of them.


def _fork(child: Callable[[], None]) -> tuple[int, int]:
    """Run child in a new process that ends with this one; return pid and pidfd."""
    parent = os.getpid()
    _flush()  # Else both would write what is buffered.
    pid = _quiet_fork()
    if pid == 0:
        _run_and_exit(parent, child)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # Not reaped yet, so the number is its own.
        os.waitpid(pid, 0)
        raise


def _quiet_fork() -> int:
    """Fork without the warning about threads, of which BLAS has some."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run_and_exit(parent: int, child: Callable[[], None]) -> None:
    status = 1
    try:
        _core.die_with_parent(parent)
        child()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)  # The exit handlers are those of the process above.


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # It may be closed or missing.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _leave_signals_to_parent() -> None:
    """Ignore Ctrl-C and termination, which are sent to whole process groups.

    A handler that does nothing, since programs that a worker runs would inherit
    SIG_IGN. The supervisor blocked both until here.
    """
    both = (signal.SIGINT, signal.SIGTERM)
    for number in both:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)


def _reap(pid: int) -> int:
    """Return the wait status of a dead child, 0 if user code took it before."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def _send(peer: socket.socket, message: _Message, *fds: int) -> None:
    # A peer that is gone is found out when the socket is read.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        socket.send_fds(peer, [_MESSAGE.pack(*message)], fds)


def _receive(peer: socket.socket) -> tuple[_Message, list[int]] | None:
    """Return the next message and its descriptors, or None when there is no peer."""
    try:
        data, fds, _, _ = socket.recv_fds(
            peer, _MESSAGE.size, _MOST_FDS, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:
        return None
    return (_Message(*_MESSAGE.unpack(data)), fds) if data else None


def _send_failure(peer: socket.socket, crew: int) -> None:
    """Send the text of the exception that is being handled."""
    text = os.memfd_create("gristmill")
    with open(text, "wb", closefd=False) as file:
        file.write(traceback.format_exc().encode(errors="replace"))
    _send(peer, _Message(_FAILED, crew), text)
    os.close(text)
