# cython: boundscheck=False, wraparound=False
"""Takes elements apart into leaves and puts them together again.

There are two sets of rules for containers: "jax" are those of jax.tree_util, "plain"
are those of Grain without jax.  This module handles dicts, lists and tuples itself, and
calls `containers`, which implements the rules, for all other types.
"""
cimport numpy as cnp
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Size
from cpython.list cimport (
    PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from gristmill._hot.containers import (
    MisfitError, assemble, raise_mismatch, sort_keys, split, take_apart,
)

cnp.import_array()

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) noexcept
    void Py_LeaveRecursiveCall() noexcept

# The common kinds of `containers`; UNKNOWN stands for all others.
cdef enum Kind:
    UNKNOWN = -1
    LEAF = 0
    LIST = 2
    TUPLE = 3
    DICT = 5


cdef class TreeDef:
    """The containers of an element without its leaves.

    It is immutable, comparable and picklable.  ``num_leaves`` is its number of leaves;
    `containers.TreeLevel` describes ``kind``, ``cls`` and ``aux``.
    """

    cdef readonly int kind
    cdef readonly object cls
    cdef readonly object aux
    cdef readonly tuple children
    cdef readonly Py_ssize_t num_leaves

    def __init__(self, int kind, cls, aux, tuple children):
        cdef TreeDef child
        self.kind = kind
        self.cls = cls
        self.aux = aux
        self.children = children
        self.num_leaves = 1 if kind == LEAF else 0
        for child in children:
            self.num_leaves += child.num_leaves

    def __eq__(self, other):
        if type(other) is not TreeDef:
            return NotImplemented
        return self is other or self.__reduce__() == other.__reduce__()

    def __reduce__(self):
        if self.kind == LEAF:
            return "LEAF_DEF"  # pickle takes a str as the name of a global.
        return TreeDef, (self.kind, self.cls, self.aux, self.children)

    def __repr__(self):
        return f"TreeDef({unflatten(self, ['*'] * self.num_leaves)!r})"


LEAF_DEF = TreeDef(LEAF, None, None, ())
cdef TreeDef _LEAF = LEAF_DEF


cdef inline int _enter_recursion(const char* where) except -1:
    """Enter a recursive call; raise RecursionError if the recursion is too deep.

    If this does not raise, the caller must call Py_LeaveRecursiveCall.
    """
    return -1 if Py_EnterRecursiveCall(where) else 0


cdef int _kind(object tree):
    """Return an element's kind if both sets of rules agree on it; else UNKNOWN."""
    cdef object cls = type(tree)
    if cnp.PyArray_CheckExact(tree):
        return LEAF
    if cls is dict:
        return DICT
    if cls is list:
        return LIST
    if cls is tuple:
        return TUPLE
    return LEAF if cnp.PyArray_IsAnyScalar(tree) else UNKNOWN


cdef tuple _keys(dict tree, bint jax):
    if not jax:
        return tuple(tree)
    try:
        return tuple(sorted(tree))
    except Exception:
        return sort_keys(tuple(tree))  # Raises jax's error for unsortable keys.


cdef TreeDef _flatten(object tree, bint jax, list leaves):
    """Append the leaves of a tree to `leaves`, and return its structure."""
    cdef object level = None if _kind(tree) == LEAF else take_apart(tree, jax)
    cdef list defs = []
    if level is None:
        leaves.append(tree)
        return _LEAF
    kind, cls, aux, children = level
    _enter_recursion(b" while flattening an element")
    try:
        for child in children:
            defs.append(_flatten(child, jax, leaves))
    finally:
        Py_LeaveRecursiveCall()
    return TreeDef(kind, cls, aux, tuple(defs))


cdef bint _is_jax(object rules) except -1:
    if rules == "jax":
        return True
    if rules == "plain":
        return False
    raise ValueError(f"rules must be 'jax' or 'plain', got {rules!r}.")


def flatten(tree, rules):
    """Return ``(leaves, treedef)`` of an element under rules "jax" or "plain"."""
    cdef list leaves = []
    cdef TreeDef treedef = _flatten(tree, _is_jax(rules), leaves)
    return leaves, treedef


cdef object _unflatten(TreeDef node, object leaves):
    """Return the element of a structure; `leaves` is an iterator over its leaves."""
    cdef list items = []
    if node.kind == LEAF:
        return next(leaves)
    _enter_recursion(b" while making an element")
    try:
        for child in node.children:
            items.append(_unflatten(child, leaves))
    finally:
        Py_LeaveRecursiveCall()
    if node.kind == LIST:
        return items
    if node.kind == DICT and node.cls is None:
        return dict(zip(<tuple>node.aux, items))
    return assemble(node.kind, node.cls, node.aux, items)


def unflatten(TreeDef treedef not None, leaves):
    """Return the element with the given leaves; the inverse of `flatten`.

    Raises:
        ValueError: The number of leaves is not that of the treedef.
    """
    cdef list items = list(leaves)
    if len(items) != treedef.num_leaves:
        raise ValueError(
            f"leaves must have {treedef.num_leaves} items, got {len(items)}."
        )
    return _unflatten(treedef, iter(items))


cdef list _columns_of_dicts(list column, tuple keys):
    """Return a column for each key; None if not all are dicts with these keys."""
    cdef Py_ssize_t i, n = PyList_GET_SIZE(column)
    cdef list out = [], child_column
    cdef object element
    cdef PyObject* item
    for element in column:
        if type(element) is not dict or PyDict_Size(element) != len(keys):
            return None
    for key in keys:
        child_column = PyList_New(n)
        for i in range(n):
            item = PyDict_GetItemWithError(<object>PyList_GET_ITEM(column, i), key)
            if item is NULL:
                return None
            Py_INCREF(<object>item)
            PyList_SET_ITEM(child_column, i, <object>item)
        out.append(child_column)
    return out


cdef list _columns_of_sequences(list column, object cls, Py_ssize_t width):
    """Return a column for each place; None if not all have this type and length."""
    cdef Py_ssize_t j
    cdef object row
    for row in column:
        if type(row) is not cls or len(row) != width:
            return None
    return [[row[j] for row in column] for j in range(width)]


cdef TreeDef _transpose(list column, bint jax, list columns):
    """Append a column for each leaf to `columns`, and return the common structure.

    `column` has the same part of each element.  Raises MisfitError if they differ.
    """
    cdef object first = <object>PyList_GET_ITEM(column, 0)
    cdef int kind = _kind(first)
    cdef object cls = None, aux = None, level
    cdef list child_columns = None
    if kind == LEAF:
        columns.append(column)
        return _LEAF
    if kind == DICT:
        aux = _keys(first, jax)
        child_columns = _columns_of_dicts(column, aux)
    elif kind == LIST or kind == TUPLE:
        child_columns = _columns_of_sequences(column, type(first), len(first))
    if child_columns is None:
        # The first element is of another type, or the others may fit by the rules only.
        level = split(column, jax)
        if level is None:
            columns.append(column)
            return _LEAF
        kind, cls, aux, child_columns = level
    cdef list defs = []
    _enter_recursion(b" while batching elements")
    try:
        for child_column in child_columns:
            defs.append(_transpose(child_column, jax, columns))
    finally:
        Py_LeaveRecursiveCall()
    return TreeDef(kind, cls, aux, tuple(defs))


def batch_leaves(list elements not None, rules):
    """Return ``(columns, treedef)`` of B elements: one list of B per leaf.

    The first element determines the structure.  If it has a leaf at some place, the
    others may have any object there.

    Raises:
        StructureMismatchError: An element does not have the structure of the first one.
        ValueError: There are no elements.
    """
    cdef list columns = []
    cdef TreeDef treedef
    cdef bint jax = _is_jax(rules)
    if not elements:
        raise ValueError("Cannot batch 0 values.")
    try:
        treedef = _transpose(elements, jax, columns)
    except MisfitError:
        raise_mismatch(elements, jax)
    if columns and columns[0] is elements:
        # Callers may change the columns, but not the list of elements.
        columns[0] = list(elements)
    return columns, treedef


def map_batch(function, list elements not None, rules):
    """Return one element with ``function(list of B leaves)`` for each leaf.

    Raises:
        StructureMismatchError: See `batch_leaves`.
    """
    columns, treedef = batch_leaves(elements, rules)
    return unflatten(treedef, [function(column) for column in columns])
