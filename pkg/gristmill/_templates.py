"""Programs that are loaded once for several crews, one after another.

A loader whose workers do not persist starts a crew for each epoch, and its program is
the same but for its seeds.  A program that is wanted again, byte for byte, by a process
that has not changed, is loaded by a template: a child of the launcher that forks a
zygote for this crew and for later ones, so that these need not import and unpickle
anything.  A crew has a zygote of its own where loading the program fails, starts
threads or takes much memory, where a module file was edited since, and where workers
have moved in a file that the program holds open.
"""

import contextlib
import dataclasses
import gc
import os
import select
import signal
import socket
import sys
import time
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gristmill._lessons import is_installed
from gristmill._processes import (
    ENLIST,
    FORGET,
    GONE,
    REFUSED,
    ZYGOTE,
    Message,
    fork,
    lasting_threads,
    reap,
    receive,
    send,
)
from gristmill._setup import Setup
from gristmill._zygote import Zygote, become_like_parent
from gristmill._zygotes import Zygotes

# To compare larger ones takes longer than to load them.
_MOST_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20
_ENLISTED_FDS = 5
# What a program may take when it is loaded, to be kept between epochs.
_MOST_RESIDENT_BYTES = 512 << 20
# Programs that are known: those of training, of evaluation, and some more.
_MOST_KNOWN = 4
# A template that has nothing to do for so long ends.
_LONGEST_IDLE_S = 60.0

Crewed = tuple[Message, Sequence[int]]


@dataclasses.dataclass(eq=False)
class _Known:
    """A program that was wanted.

    Attributes:
        like_parent: The first part of its setup.
        blob_fd: A copy of its file.
        used_s: When it was last wanted, or done with.
        fit: Whether a template may load it.
        channel: To the template, if there is one.
        pidfd: The template's, until it is reaped.
        pid: The template's.
        waiting: Crews that the template has not answered for.
        crews: Those that have a zygote from it, once for each: a crew whose zygote
            died may have another before the death is heard of.
    """

    like_parent: bytes
    blob_fd: int
    used_s: float = 0.0
    fit: bool = True
    channel: socket.socket | None = None
    pidfd: int = -1
    pid: int = 0
    waiting: dict[int, Crewed] = dataclasses.field(default_factory=dict)
    crews: list[int] = dataclasses.field(default_factory=list)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.crews


class Templates:
    """The launcher's: the programs that were wanted last, and their templates.

    Args:
        supervisor: Told of zygotes.
        poll: Where channels and processes of templates are registered.
    """

    def __init__(self, supervisor: socket.socket, poll: "select.poll") -> None:
        self._supervisor = supervisor
        self._poll = poll
        self._known: list[_Known] = []
        # Templates that ended and are to be reaped: pidfd, pid.
        self._ending: dict[int, int] = {}

    def enlist(
        self, message: Message, fds: Sequence[int], others: Iterable[int]
    ) -> bool:
        """Let a template fork a crew's zygote; False where that is not for it.

        Args:
            message: The supervisor's.
            fds: What came with it; taken only if the result is True.
            others: Descriptors that are no business of a child's.

        Raises:
            OSError: There are no descriptors left, or processes.  Nothing is taken.
        """
        if len(fds) < _ENLISTED_FDS:
            return False  # The others found no descriptor free.
        setup = Setup.read(fds[1])
        if setup.parameters is None or _size(fds[2]) > _MOST_BYTES:
            return False
        known = self._find(setup.like_parent, fds[2])
        if known is None:
            self._remember(_Known(setup.like_parent, os.dup(fds[2]), time.monotonic()))
            return False
        known.used_s = time.monotonic()
        if message.value:  # Loading it has started threads.
            known.fit = False
        if not known.fit:
            return False
        others = [*others, *fds]
        if known.channel is None:
            self._start(known, setup, others)
        assert known.channel is not None
        send(known.channel, message, *fds)
        known.waiting[message.crew] = message, fds
        return True

    def forget(self, message: Message) -> None:
        """End the zygote of a crew, if a template forked it or is about to.

        Loading may never end, so a template for which nobody else waits ends, too.
        """
        crew = message.crew
        for known in self._known:
            if known.channel is None or not (
                crew in known.crews or crew in known.waiting
            ):
                continue
            send(known.channel, message)
            if crew in known.waiting:
                for fd in known.waiting.pop(crew)[1]:
                    os.close(fd)
                if known.idle:
                    self._end(known)

    def fds(self) -> list[int]:
        """All descriptors held here."""
        held = list(self._ending)
        for known in self._known:
            held.append(known.blob_fd)
            for _, fds in known.waiting.values():
                held += fds
            if known.channel is not None:
                held += [known.channel.fileno(), known.pidfd]
        return held

    def see_to(self, fd: int) -> Iterator[Crewed]:
        """Deal with what can be read; gives crews that need a zygote of their own.

        The descriptors of those that are still to come count as held here.
        """
        if fd in self._ending:
            self._poll.unregister(fd)
            reap(self._ending.pop(fd))
            os.close(fd)
            return
        known = self._of(fd)
        assert known is not None and known.channel is not None
        received = receive(known.channel)
        if received is not None:
            yield from self._hear(known, *received)
            return
        known.fit = False
        self._end(known)
        while known.waiting:
            yield known.waiting.popitem()[1]

    def patience_ms(self) -> int | None:
        """Milliseconds until `expire` has something to do; None: nothing to come."""
        idle = [known.used_s for known in self._known if known.idle]
        if not idle:
            return None
        left_s = min(idle) + _LONGEST_IDLE_S - time.monotonic()
        return max(0, round(left_s * 1e3) + 1)

    def expire(self) -> None:
        """Forget programs that nobody has wanted for long, and end their templates."""
        before = time.monotonic() - _LONGEST_IDLE_S
        for known in list(self._known):
            if known.idle and known.used_s < before:
                self._drop(known)

    def _find(self, like_parent: bytes, blob_fd: int) -> _Known | None:
        for known in self._known:
            if known.like_parent == like_parent and _are_same(known.blob_fd, blob_fd):
                return known
        return None

    def _of(self, fd: int) -> _Known | None:
        for known in self._known:
            if known.channel is not None and known.channel.fileno() == fd:
                return known
        return None

    def _remember(self, new: _Known) -> None:
        self._known.append(new)
        idle = sorted((k for k in self._known if k.idle), key=lambda k: k.used_s)
        for known in idle[: max(0, len(self._known) - _MOST_KNOWN)]:
            self._drop(known)

    def _start(self, known: _Known, setup: Setup, others: Iterable[int]) -> None:
        """Fork a template; raises OSError where the system has no room for it."""
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        closed = [fd for fd in others if fd != known.blob_fd]

        def child() -> None:
            near.close()
            for fd in closed:
                os.close(fd)
            self._supervisor.detach()
            _Template(far, setup, known.blob_fd).run()

        try:
            known.pid, known.pidfd = fork(child)
        except OSError:
            near.close()
            raise
        finally:
            far.close()
        known.channel = near
        self._poll.register(near, select.POLLIN)

    def _hear(
        self, known: _Known, message: Message, fds: Sequence[int]
    ) -> Iterator[Crewed]:
        """Deal with what a template says; gives a crew that it has refused."""
        crew = message.crew
        # None: it was told to forget the crew.
        crewed = None if message.kind == GONE else known.waiting.pop(crew, None)
        if message.kind == REFUSED:
            known.fit = False
            if crewed is not None:
                yield crewed
        else:
            send(self._supervisor, message, *fds)
            for fd in (*(crewed[1] if crewed else ()), *fds):
                os.close(fd)
            if message.kind == ZYGOTE:
                known.crews.append(crew)
            else:
                known.crews.remove(crew)
                known.used_s = time.monotonic()
        if not known.fit and known.idle:
            self._drop(known)  # It may be loaded anew.

    def _end(self, known: _Known) -> None:
        """End the template, if there is one, and the zygotes that it forked."""
        if known.channel is None:
            return
        signal.pidfd_send_signal(known.pidfd, signal.SIGKILL)  # It may be loading.
        self._poll.unregister(known.channel)
        known.channel.close()
        known.channel = None
        known.crews.clear()
        self._ending[known.pidfd] = known.pid
        self._poll.register(known.pidfd, select.POLLIN)

    def _drop(self, known: _Known) -> None:
        self._end(known)
        os.close(known.blob_fd)
        self._known.remove(known)


class _Template:
    """The process that has loaded a program and forks zygotes.

    Args:
        launcher: It ends when nobody is there any more.
        setup: The first crew's.
        blob_fd: The program's file.
    """

    def __init__(self, launcher: socket.socket, setup: Setup, blob_fd: int) -> None:
        self._launcher = launcher
        self._setup = setup
        self._blob_fd = blob_fd
        self._entry: types.ModuleType
        self._program: Any = None
        # What the program was loaded from, and where its open files stand.
        self._marks: dict[str, tuple[int, ...]] = {}
        self._positions: dict[int, int] = {}
        self._poll = select.poll()
        self._zygotes = Zygotes(launcher, self._poll)

    def run(self) -> None:
        """Load the program and fork zygotes until the launcher has no use for them."""
        try:
            self._load()
        except BaseException:  # Whoever tries again says what is wrong.
            return
        self._poll.register(self._launcher, select.POLLIN)
        while True:
            for ready, _ in self._poll.poll():
                if ready in self._zygotes.fds():
                    self._zygotes.bury(ready)
                    continue
                received = receive(self._launcher)
                if received is None:
                    return
                message, fds = received
                if message.kind == ENLIST:
                    self._enlist(message, fds)
                elif message.kind == FORGET:
                    self._zygotes.kill(message.crew)

    def _load(self) -> None:
        before, resident = _open_fds(), _resident_bytes()
        self._entry = become_like_parent(self._setup)
        self._program = self._entry.load(self._blob_fd)
        os.close(self._blob_fd)
        if lasting_threads():
            raise RuntimeError("loading the program started threads")
        if _resident_bytes() - resident > _MOST_RESIDENT_BYTES:
            raise MemoryError("the program is too large to be kept")
        modules = list(sys.modules.values())
        files = {getattr(module, "__file__", None) or "" for module in modules}
        self._marks = _marks_of(file for file in files if not is_installed(file))
        gc.collect()
        gc.freeze()  # As the launcher did.
        self._positions = _positions_of(_open_fds() - before)

    def _enlist(self, message: Message, fds: Sequence[int]) -> None:
        fresh = self._marks == _marks_of(self._marks)
        try:
            if fresh and self._positions == _positions_of(self._positions):
                self._fork_zygote(message.crew, fds)
            else:
                send(self._launcher, Message(REFUSED, message.crew))
        except OSError:  # The launcher tries, and says what is wrong.
            send(self._launcher, Message(REFUSED, message.crew))
        for fd in fds:
            os.close(fd)

    def _fork_zygote(self, crew: int, fds: Sequence[int]) -> None:
        def child() -> None:
            self._launcher.close()
            for other in self._zygotes.fds():
                os.close(other)
            Zygote(crew, late=False, fds=fds).run_loaded(self._entry, self._program)

        self._zygotes.fork(crew, child)


def _marks_of(files: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """What tells whether files have been edited; those that are gone are left out."""
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        with contextlib.suppress(OSError):
            status = os.stat(file)
            found[file] = status.st_mtime_ns, status.st_size, status.st_ino
    return found


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_fds() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def _positions_of(fds: Iterable[int]) -> dict[int, int]:
    """Where files stand, which is shared with all forks; pipes stand nowhere."""
    found = {}
    for fd in fds:
        with contextlib.suppress(OSError):
            found[fd] = os.lseek(fd, 0, os.SEEK_CUR)
    return found


def _size(fd: int) -> int:
    return os.fstat(fd).st_size


def _are_same(one: int, other: int) -> bool:
    """Whether two files have the same contents."""
    size = _size(one)
    return size == _size(other) and all(
        os.pread(one, _CHUNK_BYTES, at) == os.pread(other, _CHUNK_BYTES, at)
        for at in range(0, size, _CHUNK_BYTES)
    )
