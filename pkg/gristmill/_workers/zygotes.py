"""The zygotes that a process has forked, as the process itself sees them."""

import os
import select
import signal
import socket
from collections.abc import Callable

from gristmill._workers.processes import GONE, ZYGOTE, Message, fork, reap, send


class Zygotes:
    """Forks zygotes, one for each crew, and tells of their births and deaths.

    Args:
        told: Who is told.
        poll: Where their deaths become events.
    """

    def __init__(self, told: socket.socket, poll: "select.poll") -> None:
        self._told = told
        self._poll = poll
        self._living: dict[int, tuple[int, int]] = {}  # pidfd: crew, pid

    def fds(self) -> list[int]:
        """All descriptors held here; one that is ready is to be buried."""
        return list(self._living)

    def fork(self, crew: int, child: Callable[[], None]) -> None:
        """Run child as the zygote of a crew.

        Raises:
            OSError: The system has no room for it.
        """
        pid, pidfd = fork(child)
        self._living[pidfd] = crew, pid
        self._poll.register(pidfd, select.POLLIN)
        send(self._told, Message(ZYGOTE, crew, value=pid), pidfd)

    def kill(self, wanted: int) -> None:
        """End the zygote of a crew, if there is one."""
        for pidfd, (crew, _) in self._living.items():
            if crew == wanted:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def bury(self, pidfd: int) -> None:
        """Tell how a zygote ended."""
        self._poll.unregister(pidfd)
        crew, pid = self._living.pop(pidfd)
        send(self._told, Message(GONE, crew, value=reap(pid)))
        os.close(pidfd)
