"""The socket by which ranks find the pool of a name.

By default its address is in the abstract namespace: the system removes it with the last
process that has it, however that ends.  Abstract addresses belong to a network
namespace.  Containers with network namespaces of their own can share a folder instead:
a name with a slash is the path of a socket in a file system.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import stat
import struct
from collections.abc import Iterator

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_BACKLOG = 1024


class Connection(socket.socket):
    """A socket that is closed with the last reference to it."""

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # The socket was not created.
            self.close()


class Address:
    """The address of a pool.

    Args:
        name: The name of the pool, or the path of its socket.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_path = "/" in name
        if self.is_path:
            self._address = os.path.abspath(name)
        else:
            digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
            self._address = f"\0gristmill-{os.getuid()}-{digest}"

    def connect(self) -> socket.socket | None:
        """Return a connection to the pool; None if no process listens.

        Raises:
            PermissionError: A process of another user listens.
            OSError: The path is too long, or cannot be used.
        """
        connection = _new_socket()
        try:
            connection.connect(self._address)
        except (ConnectionRefusedError, FileNotFoundError):
            connection.close()
            return None
        except OSError as error:
            connection.close()
            error.add_note(f"while connecting to the pool {self.name!r}")
            raise
        try:
            _, user = peer_of(connection)
        except OSError:
            connection.close()
            return None
        if user != os.getuid():
            connection.close()
            raise PermissionError(
                f"The pool {self.name!r} must belong to user {os.getuid()}, who runs"
                f" this process, but it belongs to user {user}. Use another name."
            )
        return connection

    def listen(self) -> socket.socket | None:
        """Return a socket that listens; None if another process listens already.

        Raises:
            FileExistsError: The path is that of a file which is not a socket.
            FileNotFoundError: Its folder does not exist.
            OSError: The path cannot be used.
        """
        listener = _new_socket()
        with self._exclusive():
            if self.is_path and not self._remove_stale():
                listener.close()
                return None
            try:
                listener.bind(self._address)
            except OSError:
                listener.close()
                if self.is_path:
                    raise
                return None
            listener.listen(_BACKLOG)
        return listener

    def remove(self) -> None:
        """Remove the socket from the file system, if it is there."""
        if self.is_path:
            with contextlib.suppress(OSError):
                os.unlink(self._address)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Prevent other processes from replacing a socket in a file system."""
        if not self.is_path:
            yield
            return
        path = os.path.dirname(self._address)
        try:
            folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"The name of a pool with a slash is the path of a socket, whose folder"
                f" must exist, but {path!r} does not (name={self.name!r}). Create it,"
                " or pass a name without a slash."
            ) from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _remove_stale(self) -> bool:
        """Remove a socket on which no process listens; return False if one does."""
        probe = _new_socket()
        try:
            probe.connect(self._address)
            return False
        except FileNotFoundError:
            return True
        except ConnectionRefusedError:  # Other files refuse connections, too.
            if not stat.S_ISSOCK(os.stat(self._address).st_mode):
                raise FileExistsError(
                    f"The name of a pool with a slash must be the path of a socket, or"
                    f" a new path, but {self.name!r} is another file. Use another path."
                ) from None
            os.unlink(self._address)
            return True
        finally:
            probe.close()


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user of the process at the other end."""
    data = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    pid, user, _ = _CREDENTIALS.unpack(data)
    return pid, user


def _new_socket() -> socket.socket:
    new = Connection(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    new.settimeout(None)  # Programs can set another default.
    return new
