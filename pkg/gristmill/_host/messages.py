"""Messages between ranks, the server of a pool, its zygote and its workers.

A message is a tuple, pickled into one packet of a SOCK_SEQPACKET socket.  Units have
packets of their own; see `unit_packets`.  What is too large for a packet travels in an
anonymous file.
"""

from __future__ import annotations

import array
import errno
import os
import pickle
import select
import socket
from typing import Any

# The system limits a packet to about 200 KiB.
MAX_PACKET_BYTES = 64 << 10
# Neither a pickle of protocol 5 nor a result is this byte.
_IN_FILE = b"F"
_MAX_FDS = 4

Message = tuple[Any, ...]


def send(peer: socket.socket, message: Message, *fds: int) -> None:
    """Send a message with copies of descriptors.

    Raises:
        OSError: The peer is gone.
    """
    send_packet(peer, pickle.dumps(message, 5), *fds)


def send_packet(peer: socket.socket, packet: bytes, *fds: int) -> None:
    """Send bytes with copies of descriptors.

    Raises:
        OSError: The peer is gone.
    """
    if len(packet) > MAX_PACKET_BYTES:
        file = os.memfd_create("gristmill-message", os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as writer:
                writer.write(packet)
            send_packet(peer, _IN_FILE, *fds, file)
        finally:
            os.close(file)
    elif fds:
        rights = socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds)
        peer.sendmsg([packet], [rights], socket.MSG_NOSIGNAL)
    else:
        # Some programs let SIGPIPE end them.
        peer.send(packet, socket.MSG_NOSIGNAL)


def try_send(peer: socket.socket, message: Message, *fds: int) -> bool:
    """Send a message with copies of descriptors; return False if the peer is gone."""
    return try_send_packet(peer, pickle.dumps(message, 5), *fds)


def try_send_packet(peer: socket.socket, packet: bytes, *fds: int) -> bool:
    """Send bytes with copies of descriptors; return False if the peer is gone."""
    try:
        send_packet(peer, packet, *fds)
    except OSError:
        return False
    return True


def receive(peer: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message and its descriptors; None if the peer is gone.

    Raises:
        OSError: This process has too many descriptors.
    """
    received = receive_packet(peer)
    return None if received is None else (pickle.loads(received[0]), received[1])


def receive_packet(peer: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the next packet and its descriptors; None if the peer is gone.

    Raises:
        OSError: This process has too many descriptors.
    """
    try:
        packet, fds, flags, _ = socket.recv_fds(
            peer, MAX_PACKET_BYTES, _MAX_FDS, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:
        return None
    if not packet:
        return None
    if flags & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    if packet == _IN_FILE:
        with open(fds.pop(), "rb") as file:
            file.seek(0)
            packet = file.read()
    return packet, fds


def can_receive(peer: socket.socket) -> bool:
    """Return whether a message, or the end of the peer, has arrived."""
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    return bool(poll.poll(0))


def new_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
