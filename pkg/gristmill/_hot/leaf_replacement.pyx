# cython: boundscheck=False, wraparound=False
"""Replaces the leaves of one type in trees of dicts, lists, tuples and atoms."""
cimport cython
from libc.stdint cimport uintptr_t
from libcpp.unordered_map cimport unordered_map

from gristmill._hot.slot_format cimport LIGHT_PARTS, MAX_DEPTH


class NotPlainError(Exception):
    """Raised if a part is not an atom, a plain container or a leaf to replace."""


cdef inline bint _is_atom(object leaf) noexcept:
    """Return whether a leaf can be sent as it is, and may be a key."""
    cdef object kind = type(leaf)
    return (
        kind is str or kind is int or kind is float or kind is bool or leaf is None
        or kind is bytes or kind is complex
    )


cdef bint _has_only_atoms(object container) except -1:
    cdef object key, part
    if type(container) is dict:
        for key, part in (<dict>container).items():
            if not (_is_atom(key) and _is_atom(part)):
                return False
    else:
        for part in container:
            if not _is_atom(part):
                return False
    return True


@cython.final
cdef class _Replacement:
    """Walks one tree.

    A container with many parts is walked only once, even if the tree contains it
    several times.
    """

    cdef object kind  # The type of the leaves to replace.
    cdef object function  # Returns the replacement of a leaf.
    cdef Py_ssize_t visited  # The number of parts visited so far.
    # For containers with many parts, by address: whether they have leaves to replace.
    cdef unordered_map[uintptr_t, bint] large

    cdef object replace_in(self, object tree, int depth):
        """Return the tree with its leaves replaced; itself if it has none."""
        cdef object kind = type(tree)
        self.visited += 1
        if kind is self.kind:
            return self.function(tree)
        if _is_atom(tree):
            return tree
        if kind is not dict and kind is not list and kind is not tuple:
            raise NotPlainError
        return self.replace_in_container(tree, depth)

    cdef object replace_in_container(self, object tree, int depth):
        """Like `replace_in`, for a dict, list or tuple."""
        cdef uintptr_t address = <uintptr_t><void*>tree
        cdef Py_ssize_t visited_before = self.visited
        cdef object key, part, new
        cdef list parts = []
        cdef bint changed = False
        if not self.large.empty() and self.large.count(address):
            if self.large[address]:  # Its copy is not kept.
                raise NotPlainError
            return tree
        if _has_only_atoms(tree):
            self.visited += len(tree)
            if len(tree) > LIGHT_PARTS:
                self.large[address] = False
            return tree
        if depth == MAX_DEPTH:
            raise NotPlainError
        if type(tree) is dict:
            for key in <dict>tree:
                if not _is_atom(key):
                    raise NotPlainError
        for part in (<dict>tree).values() if type(tree) is dict else tree:
            new = self.replace_in(part, depth + 1)
            changed = changed or new is not part
            parts.append(new)
        if self.visited - visited_before > LIGHT_PARTS:
            self.large[address] = changed
        if not changed:
            return tree
        if type(tree) is dict:
            return dict(zip(<dict>tree, parts))
        return parts if type(tree) is list else tuple(parts)


def replace_leaves(tree, kind not None, function not None):
    """Return a tree with ``function(leaf)`` for each leaf of exactly one type.

    Containers without such leaves are not copied.

    Raises:
        NotPlainError: A part is not a leaf to replace, a dict, list, tuple, str, int,
            float, bool, bytes, complex or None.  Or a key of a dict is not an atom.  Or
            the containers are nested too deeply, perhaps recursively.  Or the tree
            contains a container with many parts and such leaves twice.
        Exception: The function raised it.
    """
    cdef _Replacement replacement = _Replacement.__new__(_Replacement)
    replacement.kind = kind
    replacement.function = function
    return replacement.replace_in(tree, 0)
