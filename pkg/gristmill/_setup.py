"""What a zygote is told besides its program: an anonymous file in two parts.

The first part makes it resemble the user's process; crews that are alike have it in
common.  The second part says what is this crew's own.  Layout: the size of the first
part as a little-endian u64, and the two, pickled.
"""

import os
import pickle
import struct
from typing import Any, NamedTuple

_SIZE = struct.Struct("<Q")


class Setup(NamedTuple):
    """The two parts.

    Attributes:
        like_parent: The first, pickled.
        parameters: The second; None if the program is for this crew alone.
    """

    like_parent: bytes
    parameters: dict[str, Any] | None

    @staticmethod
    def pack(like_parent: dict[str, Any], parameters: dict[str, Any] | None) -> bytes:
        """The contents of the file."""
        first = pickle.dumps(like_parent)
        return _SIZE.pack(len(first)) + first + pickle.dumps(parameters)

    @classmethod
    def read(cls, fd: int) -> "Setup":
        """What is in the file; its position stays."""
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        (size,) = _SIZE.unpack_from(data)
        end = _SIZE.size + size
        return cls(data[_SIZE.size : end], pickle.loads(data[end:]))
