# cython: boundscheck=False, wraparound=False
"""Takes elements apart into leaves and puts them together again.

Its plain-Python twin is gristmill._slow.tree.  Two sets of rules say what a
container is: "jax" are those of jax.tree_util, "plain" those that Grain uses
where jax is not installed.
"""
import collections
import collections.abc
import sys

cimport numpy as cnp
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError, PyDict_Size
from cpython.list cimport (
    PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE, PyList_New,
    PyList_SET_ITEM,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE

from gristmill._slow import tree as _slow

cnp.import_array()

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where)
    void Py_LeaveRecursiveCall()

cdef object _OrderedDict = collections.OrderedDict
cdef object _defaultdict = collections.defaultdict
cdef object _Mapping = collections.abc.Mapping
cdef dict _modules = sys.modules

cdef enum Kind:
    LEAF, NONE, LIST, TUPLE, NAMEDTUPLE, DICT, ORDERED, DEFAULT, CUSTOM, SEQUENCE
    MAPPING

# Sorted keys by keys in insertion order, for dicts whose keys are all str.  A
# pipeline has few of them; the limit only guards against generated keys.
cdef dict _sorted = {}
cdef Py_ssize_t _SORTED_LIMIT = 1024


cdef class TreeDef:
    """The containers of an element without its leaves.

    Immutable, hashable, comparable and picklable.  ``num_leaves`` counts the
    leaves in it.
    """

    cdef readonly int kind
    cdef readonly object cls
    cdef readonly object aux
    cdef readonly tuple children
    cdef readonly Py_ssize_t num_leaves
    cdef Py_hash_t _hash

    def __init__(self, int kind, cls, aux, tuple children):
        cdef TreeDef child
        self.kind = kind
        self.cls = cls
        self.aux = aux
        self.children = children
        self.num_leaves = 1 if kind == LEAF else 0
        for child in children:
            self.num_leaves += child.num_leaves
        self._hash = 0

    def __hash__(self):
        if self._hash == 0:
            self._hash = hash((self.kind, self.cls, self.aux, self.children)) or 1
        return self._hash

    def __eq__(self, other):
        cdef TreeDef that
        if self is other:
            return True
        if type(other) is not TreeDef:
            return NotImplemented
        that = other
        return (
            self.kind == that.kind
            and self.cls is that.cls
            and self.aux == that.aux
            and self.children == that.children
        )

    def __reduce__(self):
        if self.kind == LEAF:
            return "LEAF_DEF"
        return TreeDef, (self.kind, self.cls, self.aux, self.children)

    def __repr__(self):
        return f"TreeDef({unflatten(self, ['*'] * self.num_leaves)!r})"


LEAF_DEF = TreeDef(LEAF, None, None, ())
cdef TreeDef _LEAF = LEAF_DEF
cdef TreeDef _NONE = TreeDef(NONE, None, None, ())


cdef inline bint _is_certain_leaf(object tree):
    cdef object cls = type(tree)
    return (
        cnp.PyArray_CheckExact(tree) or cls is int or cls is float or cls is str
        or cls is bytes or cls is bool or cnp.PyArray_IsAnyScalar(tree)
    )


cdef int _kind(object tree, bint jax) except -1:
    if PyDict_CheckExact(tree):
        return DICT
    if PyList_CheckExact(tree):
        return LIST
    if PyTuple_CheckExact(tree):
        return TUPLE
    if tree is None:
        return NONE if jax else LEAF
    if _is_certain_leaf(tree):
        return LEAF
    cdef object cls = type(tree)
    if isinstance(tree, tuple) and hasattr(cls, "_fields"):
        return NAMEDTUPLE
    if jax:
        if cls is _OrderedDict:
            return ORDERED
        if cls is _defaultdict:
            return DEFAULT
        return CUSTOM if "jax" in _modules else LEAF
    if isinstance(tree, (list, tuple)):
        return SEQUENCE
    if isinstance(tree, _defaultdict):
        return DEFAULT
    return MAPPING if isinstance(tree, (dict, _Mapping)) else LEAF


cdef tuple _sort(tuple keys):
    """Returns the keys in order, with jax's error where they have none."""
    cdef object found = _sorted.get(keys)
    cdef object key
    # Equal keys of other types (1 and True) would find each other's entry.
    for key in keys:
        if type(key) is not str:
            return _slow.sort_keys(keys)
    if found is None:
        found = tuple(sorted(keys))
        if len(_sorted) >= _SORTED_LIMIT:
            _sorted.clear()
        _sorted[keys] = found
    return <tuple>found


cdef tuple _keys(object tree, int kind, bint jax):
    cdef tuple keys = tuple(tree)
    return _sort(keys) if jax and kind != ORDERED else keys


cdef int _enter() except -1:
    """Goes one container deeper.

    An element may be nested deeper than the C stack reaches, or contain itself.
    """
    # Python 3.11 returns 1 and others -1 with the RecursionError set.
    return -1 if Py_EnterRecursiveCall(" while taking an element apart") else 0


cdef TreeDef _flatten(object tree, bint jax, list leaves):
    _enter()
    try:
        return _flatten_one(tree, jax, leaves)
    finally:
        Py_LeaveRecursiveCall()


cdef TreeDef _flatten_one(object tree, bint jax, list leaves):
    cdef int kind = LEAF if cnp.PyArray_CheckExact(tree) else _kind(tree, jax)
    cdef object child, aux = None, cls = None
    cdef tuple keys
    cdef list defs
    if kind == LEAF:
        leaves.append(tree)
        return _LEAF
    if kind == NONE:
        return _NONE
    defs = []
    if kind == DICT:
        aux = keys = _keys(tree, kind, jax)
        for child in keys:
            defs.append(_flatten((<dict>tree)[child], jax, leaves))
    elif kind == LIST:
        for child in <list>tree:
            defs.append(_flatten(child, jax, leaves))
    elif kind == TUPLE:
        for child in <tuple>tree:
            defs.append(_flatten(child, jax, leaves))
    elif kind == CUSTOM:
        child = _slow.one_level(tree)
        if child is None:
            leaves.append(tree)
            return _LEAF
        children, aux = child
        for child in children:
            defs.append(_flatten(child, jax, leaves))
    elif kind == NAMEDTUPLE or kind == SEQUENCE:
        cls = type(tree)
        for child in tree:
            defs.append(_flatten(child, jax, leaves))
    else:
        cls = type(tree)
        aux = keys = _keys(tree, kind, jax)
        for child in keys:
            defs.append(_flatten(tree[child], jax, leaves))
        if kind == DEFAULT:
            aux = (tree.default_factory, keys)
    return TreeDef(kind, cls, aux, tuple(defs))


cdef bint _is_jax(object rules) except -1:
    if rules == "jax":
        return True
    if rules == "plain":
        return False
    raise ValueError(f"rules must be 'jax' or 'plain', got {rules!r}")


def flatten(tree, rules):
    """Return ``(leaves, treedef)`` of an element under rules "jax" or "plain"."""
    cdef list leaves = []
    cdef TreeDef treedef = _flatten(tree, _is_jax(rules), leaves)
    return leaves, treedef


cdef object _unflatten(TreeDef node, list leaves, Py_ssize_t* at):
    cdef int kind = node.kind
    cdef Py_ssize_t i, n
    cdef TreeDef child
    cdef tuple keys
    cdef list items
    cdef dict out
    if kind == LEAF:
        at[0] += 1
        return leaves[at[0] - 1]
    if kind == NONE:
        return None
    n = PyTuple_GET_SIZE(node.children)
    if kind == DICT:
        keys = <tuple>node.aux
        out = {}
        for i in range(n):
            child = <TreeDef>PyTuple_GET_ITEM(node.children, i)
            out[<object>PyTuple_GET_ITEM(keys, i)] = _unflatten(child, leaves, at)
        return out
    items = []
    for i in range(n):
        child = <TreeDef>PyTuple_GET_ITEM(node.children, i)
        items.append(_unflatten(child, leaves, at))
    if kind == LIST:
        return items
    if kind == TUPLE:
        return tuple(items)
    return _slow.assemble(kind, node.cls, node.aux, items)


def unflatten(TreeDef treedef not None, leaves):
    """Return the element that has these leaves; the opposite of flatten.

    Raises:
        ValueError: There are more or fewer leaves than the treedef has.
    """
    cdef Py_ssize_t at = 0
    cdef list items = leaves if type(leaves) is list else list(leaves)
    if len(items) != treedef.num_leaves:
        raise ValueError(
            f"expected {treedef.num_leaves} leaves, got {len(items)}"
        )
    return _unflatten(treedef, items, &at)


class _Misfit(Exception):
    """An element does not fit; the slow twin then finds out which and where."""


cdef list _column_of_key(list column, object key, Py_ssize_t n_keys):
    cdef Py_ssize_t i, n = PyList_GET_SIZE(column)
    cdef list out = PyList_New(n)
    cdef PyObject* element
    cdef PyObject* item
    for i in range(n):
        element = PyList_GET_ITEM(column, i)
        if not PyDict_CheckExact(<object>element):
            raise _Misfit
        if PyDict_Size(<object>element) != n_keys:
            raise _Misfit
        item = PyDict_GetItemWithError(<object>element, key)
        if item is NULL:
            raise _Misfit
        Py_INCREF(<object>item)
        PyList_SET_ITEM(out, i, <object>item)
    return out


cdef list _columns_of_rows(list rows, Py_ssize_t width):
    """Returns column after column of rows, all lists or tuples of ``width``."""
    cdef list out = []
    cdef Py_ssize_t j
    for j in range(width):
        out.append([row[j] for row in rows])
    return out


cdef TreeDef _transpose_all(
    int kind, object cls, object aux, list parts, bint jax, list columns
):
    cdef list part, defs = []
    _enter()
    try:
        for part in parts:
            defs.append(_transpose(part, jax, columns))
    finally:
        Py_LeaveRecursiveCall()
    return TreeDef(kind, cls, aux, tuple(defs))


cdef TreeDef _transpose(list column, bint jax, list columns):
    cdef object first = <object>PyList_GET_ITEM(column, 0)
    cdef int kind = LEAF if cnp.PyArray_CheckExact(first) else _kind(first, jax)
    cdef Py_ssize_t width
    cdef list parts
    cdef tuple keys
    cdef object element, cls, aux, rules, found
    if kind == LEAF:
        columns.append(column)
        return _LEAF
    if kind == DICT:
        keys = _keys(first, kind, jax)
        width = PyTuple_GET_SIZE(keys)
        if width == 0:
            for element in column:
                if not PyDict_CheckExact(element) or PyDict_Size(element):
                    raise _Misfit
        parts = [_column_of_key(column, key, width) for key in keys]
        return _transpose_all(kind, None, keys, parts, jax, columns)
    if kind == LIST or kind == TUPLE:
        width = len(first)
        for element in column:
            if type(element) is not type(first) or len(element) != width:
                raise _Misfit
        parts = _columns_of_rows(column, width)
        return _transpose_all(kind, None, None, parts, jax, columns)
    if kind == NONE:
        for element in column:
            if element is not None:
                raise _Misfit
        return _NONE
    # Rare containers: their twin knows how to take them apart.
    rules = "jax" if jax else "plain"
    for element in column:
        if not _slow.fits(first, element, rules):
            raise _Misfit
    found = _slow.split(column, rules)
    if found is None:
        columns.append(column)
        return _LEAF
    _, cls, aux, parts = found
    return _transpose_all(kind, cls, aux, parts, jax, columns)


def batch_leaves(list elements not None, rules):
    """Return ``(columns, treedef)`` of B elements: one list of B per leaf.

    The first element says what the structure is; where it has a leaf, the others
    may have anything.

    Raises:
        StructureMismatch: An element does not have the structure of the first.
        ValueError: There are no elements.
    """
    cdef list columns = []
    cdef TreeDef treedef
    cdef bint jax = _is_jax(rules)
    if not elements:
        raise ValueError("Cannot batch 0 values.")
    try:
        treedef = _transpose(elements, jax, columns)
    except _Misfit:
        columns, plain = _slow.batch_leaves(elements, rules)
        treedef = from_twin(plain)
    if columns and columns[0] is elements:
        # A caller may change the columns, never the elements.
        columns[0] = list(elements)
    return columns, treedef


def from_twin(node):
    """Return the treedef that equals one of the slow twin's."""
    if node.kind == LEAF:
        return _LEAF
    children = tuple([from_twin(child) for child in node.children])
    return TreeDef(node.kind, node.cls, node.aux, children)


def map_batch(function, list elements not None, rules):
    """Return one element with ``function(list of B leaves)`` for each leaf.

    Raises:
        StructureMismatch: As batch_leaves.
    """
    columns, treedef = batch_leaves(elements, rules)
    return unflatten(treedef, [function(column) for column in columns])
