"""Pickles arrays so that they are writable after loading.

Protocol 5 preserves a read-only flag and a foreign byte order.  The older protocols,
which the queues of torch and Grain use, do not.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def reduce_array(array: Array) -> tuple[Any, ...]:
    """Reduce an array for protocol 5 with the semantics of the older protocols.

    The loaded array is writable and has this machine's byte order.  An out-of-band
    buffer still views the memory of the original array.
    """
    reduced: Any = array.__reduce_ex__(5 if array.dtype.isnative else 4)
    make, arguments, *_ = reduced
    buffer = arguments[0]
    if array.flags.writeable or not isinstance(buffer, pickle.PickleBuffer):
        return cast(tuple[Any, ...], reduced)
    unlocked: Any = np.asarray(_Unlocked(np.frombuffer(buffer.raw(), np.uint8)))
    return make, (pickle.PickleBuffer(unlocked), *arguments[1:])


def dumps(obj: Any, buffer_callback: Callable[[Any], Any] | None = None) -> bytes:
    """Return an object's pickle, with arrays that load as writable."""
    file = io.BytesIO()
    _Pickler(file, 5, buffer_callback=buffer_callback).dump(obj)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return reduce_array(obj) if type(obj) is np.ndarray else NotImplemented


class _Unlocked:
    """Presents read-only memory as writable to a pickler, which only reads it."""

    def __init__(self, memory: Array) -> None:
        self._memory = memory
        interface = memory.__array_interface__
        address, _ = interface["data"]
        self.__array_interface__ = {**interface, "data": (address, False)}
