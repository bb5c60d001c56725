"""Computes digests of pipelines, to find out whether two programs have the same one.

Pickles of equal pipelines can differ.  The digest covers what a pickle would contain:
names of types and functions, their code, and the values that they hold.  Parts of large
arrays and of long lists stand for the whole: ranks that compare terabytes of mapped
files would wait for the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

# The digest of a long list of objects covers this many items at its start and end.
MAX_ITEMS = 64
# A list of nothing but these is covered as a whole.
_PLAIN_TYPES = {type(None), bool, int, float, complex, str, bytes}
# The digest covers at most this many values, not counting numbers and strings.
MAX_VALUES = 100_000
# The digest of a larger array covers this many blocks of it, at equal distances.
MAX_ARRAY_BYTES = 64 << 20
BLOCKS = 1024
BLOCK_BYTES = MAX_ARRAY_BYTES // BLOCKS


def digest_of(value: object, *, whole_arrays: bool = False) -> str:
    """Return a digest of a value, in hex.

    Args:
        value: The value.
        whole_arrays: Whether it covers all elements of large arrays, too.
    """
    digest = _Digest(whole_arrays)
    digest.add(value)
    return digest.hex()


def digests_of(parts: Mapping[str, object]) -> dict[str, str]:
    """Return a digest of each named part of a pipeline."""
    return {name: digest_of(part) for name, part in parts.items()}


def names_of_differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return the names of the parts whose digests differ; empty if all are equal."""
    names = sorted(ours.keys() | theirs.keys())
    return ", ".join(name for name in names if ours.get(name) != theirs.get(name))


class _Digest:
    """A digest to which values are added one by one."""

    def __init__(self, whole_arrays: bool) -> None:
        self._hash = hashlib.sha256()
        self._whole_arrays = whole_arrays
        # Maps the id of each value to its position in the order of values, and to the
        # value itself, so that no other object gets the same id.
        self._seen: dict[int, tuple[int, object]] = {}

    def hex(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Add a value, and the values that it holds, each object once."""
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            self._update(type(value).__name__, repr(value))
        elif id(value) in self._seen:
            self._update("again", self._seen[id(value)][0])
        elif len(self._seen) < MAX_VALUES:
            self._seen[id(value)] = len(self._seen), value
            self._add_contents(value)

    def _add_contents(self, value: Any) -> None:
        if isinstance(value, (bytes, bytearray, memoryview)):
            self._add_array("bytes", np.asarray(memoryview(value)))
        elif type(value) in (np.ndarray, np.memmap) and not value.dtype.hasobject:
            self._add_array(_name(type(value)), value)
        elif isinstance(value, (list, tuple)):
            self._update(type(value).__name__, len(value))
            if {*map(type, value)} <= _PLAIN_TYPES:
                for start in range(0, len(value), MAX_ITEMS):
                    self._update(*value[start : start + MAX_ITEMS])
                return
            self._add_all([*value[:MAX_ITEMS], *value[MAX_ITEMS:][-MAX_ITEMS:]])
        elif isinstance(value, (set, frozenset)):
            # The order of a set differs between processes.
            self._update("set", sorted(map(self._digest_alone, value)))
        elif isinstance(value, dict):
            self._update(type(value).__name__, len(value))
            self._add_all(item for pair in value.items() for item in pair)
        elif isinstance(value, types.CodeType):
            self._update(value.co_code, value.co_names)
            self._add_all(value.co_consts)
        elif isinstance(value, types.FunctionType):
            self._update(_name(value))
            parts = value.__code__, value.__defaults__, value.__kwdefaults__
            self._add_all([*parts, *(cell.cell_contents for cell in _cells(value))])
        elif isinstance(value, (type, types.BuiltinFunctionType, types.ModuleType)):
            self._update(_name(value))
        else:
            self._update(_name(type(value)))
            self._add_all(_parts(value))

    def _digest_alone(self, value: object) -> str:
        return digest_of(value, whole_arrays=self._whole_arrays)

    def _add_array(self, kind: str, array: npt.NDArray[Any]) -> None:
        """Add an array without a copy of it, since it may fill the memory."""
        self._update(kind, repr(array.dtype), array.shape)
        items = array.reshape(-1) if array.flags.c_contiguous else array.flat
        count = max(1, BLOCK_BYTES // max(1, array.itemsize))
        step = count
        if array.nbytes > MAX_ARRAY_BYTES and not self._whole_arrays:
            step = max(count, -(-(array.size - count) // (BLOCKS - 1)))
        for start in range(0, array.size, step):
            self._hash.update(items[start : start + count].tobytes())

    def _update(self, *words: object) -> None:
        self._hash.update(f"{words}\n".encode())

    def _add_all(self, values: Iterable[object]) -> None:
        for value in values:
            self.add(value)
        self._update("end")


def _name(value: Any) -> str:
    module = getattr(value, "__module__", "")
    return f"{module}.{getattr(value, '__qualname__', value.__name__)}"


def _cells(function: types.FunctionType) -> Iterable[types.CellType]:
    return function.__closure__ or ()


def _parts(value: object) -> list[object]:
    """Return the values from which `pickle` would restore an object."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        with contextlib.suppress(Exception):  # Sparse tensors have no such view.
            # Pickles of tensors contain addresses.
            flat = value.detach().cpu().flatten().view(torch.uint8)
            return [str(value.dtype), tuple(value.shape), flat.numpy()]
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # Any error: packing reports what cannot be pickled.
        return [vars(value)] if hasattr(value, "__dict__") else []
    if isinstance(reduced, str):
        return [reduced]
    # Pickle's optional items: state, list items, pairs of dict items, and a setter.
    factory, arguments, *optional = reduced
    state, items, pairs = [*optional, None, None, None][:3]
    return [factory, arguments, state, [*(items or ())], [*(pairs or ())]]
