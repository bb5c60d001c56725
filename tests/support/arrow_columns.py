"""Random Arrow columns of every type, and their Python values in Gristmill."""

import datetime
import decimal
import random
import string
import uuid

import numpy as np
import pandas
import pyarrow as pa
from hypothesis import strategies as st

SMALL = range(-3, 4)
POSITIVE = range(4)
HALVES = (-1.5, 0.0, 2.5)
DAYS = [day * 86_400_000 for day in SMALL]
CENTS = [decimal.Decimal(n) / 100 for n in (-150, 0, 725)]
TEXTS = ("", "a", "b\0", "é" * 20)
BYTES = (b"", b"a", b"\0\xff", b"b" * 20)
UNITS = ("s", "ms", "us", "ns")

# Types without nested values, and some of their values.
LEAVES = {
    pa.int8(): SMALL,
    pa.int16(): SMALL,
    pa.int32(): SMALL,
    pa.int64(): (*SMALL, -(2**53), 2**53, 2**53 + 1, 2**62 + 1),
    pa.uint16(): POSITIVE,
    pa.uint64(): (0, 2**53, 2**53 + 1, 2**64 - 1),
    pa.float16(): HALVES,
    pa.float32(): HALVES,
    pa.float64(): (*HALVES, 0.1),
    pa.bool_(): (False, True),
    pa.date32(): SMALL,
    pa.date64(): DAYS,
    pa.time32("ms"): POSITIVE,
    pa.time64("us"): POSITIVE,
    pa.time64("ns"): POSITIVE,
    **{pa.timestamp(unit): SMALL for unit in UNITS},
    **{pa.timestamp(unit, "Europe/Berlin"): SMALL for unit in UNITS},
    **{pa.duration(unit): SMALL for unit in UNITS},
    pa.decimal128(5, 2): CENTS,
    pa.decimal256(5, 2): CENTS,
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.binary_view(): BYTES,
    pa.binary(2): (b"ab", b"\0\0"),
    pa.binary(16): (bytes(16), bytes(range(16))),
    pa.null(): (None,),
}
# Parquet files do not support this type.
INTERVAL = pa.month_day_nano_interval()
EXTENSIONS = [
    pa.uuid(),
    pa.bool8(),
    pa.json_(),
    pa.opaque(pa.int64(), "kind", "vendor"),
    pa.fixed_shape_tensor(pa.int16(), (2,)),
]
ENCODED = [
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us"), pa.decimal128(5, 2), pa.bool_()),
]


def kinds(parquet):
    """Draw types, nested to any depth: all types, or those that Parquet files have."""
    leaves = [st.sampled_from([*LEAVES, *EXTENSIONS]), dictionaries()]
    if not parquet:
        leaves += [
            st.just(INTERVAL),
            st.sampled_from(ENCODED).map(lambda k: pa.run_end_encoded(pa.int32(), k)),
            st.sampled_from([pa.dense_union, pa.sparse_union]).map(
                lambda union: union(
                    [pa.field("i", pa.int8()), pa.field("s", pa.string())]
                )
            ),
        ]
    return st.recursive(st.one_of(leaves), _nested, max_leaves=4)


def dictionaries():
    return st.builds(
        pa.dictionary,
        st.sampled_from([pa.int8(), pa.uint32(), pa.int64()]),
        st.sampled_from(ENCODED),
        ordered=st.booleans(),
    )


def _nested(inner):
    lists = [
        pa.list_,
        pa.large_list,
        pa.list_view,
        pa.large_list_view,
        lambda kind: pa.list_(kind, 2),
    ]
    return st.one_of(
        *(inner.map(make) for make in lists),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct(zip(string.ascii_lowercase, kinds, strict=False))
        ),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    )


def is_flat(kind):
    """Return whether values of a type contain no other values."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return pa.types.is_run_end_encoded(kind) or not pa.types.is_nested(kind)


class Maker:
    """Makes random arrays of given types.

    Attributes:
        parquet: Whether the arrays are written to Parquet files, which have no missing
            fixed-size lists (pyarrow cannot read them) and no missing dictionary items.
    """

    def __init__(self, seed, parquet):
        self._random, self.parquet = random.Random(seed), parquet

    def column(self, kind):
        """Make at least one chunk of at most 4 rows, each a slice of a longer array."""
        chunks = []
        for _ in range(self._random.randint(1, 3)):
            nulls = self._random.random() < 0.5
            chunks.append(self._slice(kind, self._random.randint(0, 4), nulls))
        chunks.append(self.array(kind, 1, nulls))
        return pa.chunked_array(chunks, kind)

    def array(self, kind, count, nulls):
        """Make an array of `count` values."""
        types = pa.types
        if isinstance(kind, pa.BaseExtensionType):
            storage = self.array(kind.storage_type, count, nulls)
            return pa.ExtensionArray.from_storage(kind, storage)
        if types.is_dictionary(kind):
            return self._dictionary(kind, count, nulls)
        if types.is_run_end_encoded(kind):
            ends = pa.array(np.arange(1, count + 1) * 2, kind.run_end_type)
            values = self._slice(kind.value_type, count, nulls)
            runs = pa.RunEndEncodedArray.from_arrays(ends, values, kind)
            return runs.slice(count - count // 2, count)
        if types.is_union(kind):
            return self._union(kind, count, nulls)
        if types.is_struct(kind):
            fields = [self._slice(field.type, count, nulls) for field in kind]
            mask = self._mask(count, nulls)
            return pa.StructArray.from_arrays(fields, fields=[*kind], mask=mask)
        if types.is_nested(kind):
            return self._lists(kind, count, nulls)
        if kind == INTERVAL:
            values = [tuple(self._choose(SMALL, 3)) for _ in range(count)]
        else:
            values = self._choose(LEAVES[kind], count)
        missing = self._choose((False, nulls), count)
        return pa.array(
            [None if gone else v for v, gone in zip(values, missing, strict=True)], kind
        )

    def _slice(self, kind, count, nulls):
        before, after = self._choose(range(4), 2)
        array = self.array(kind, before + count + after, nulls)
        return array.slice(before, count)

    def _choose(self, values, count):
        return self._random.choices(values, k=count)

    def _mask(self, count, nulls):
        flags = self._choose((False, True), count)
        return pa.array(flags, pa.bool_()) if nulls else None

    def _dictionary(self, kind, count, nulls):
        missing = nulls and not self.parquet and self._random.random() < 0.5
        items = self._slice(kind.value_type, 3, missing)
        if not missing:
            items = items.unique()
        places = [*range(len(items)), *([None] if nulls else [])]
        indices = pa.array(self._choose(places, count), kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, items, ordered=kind.ordered)

    def _union(self, kind, count, nulls):
        codes = pa.array(self._choose((0, 1), count), pa.int8())
        fields = [kind.field(i) for i in range(kind.num_fields)]
        inner = [self._slice(field.type, count, nulls) for field in fields]
        names = [field.name for field in fields]
        if kind.mode == "sparse":
            return pa.UnionArray.from_sparse(codes, inner, names)
        places = pa.array(range(count), pa.int32())
        return pa.UnionArray.from_dense(codes, places, inner, names)

    def _lists(self, kind, count, nulls):
        mask = self._mask(count, nulls)
        if pa.types.is_fixed_size_list(kind):
            inner = self._slice(kind.value_type, kind.list_size * count, nulls)
            mask = None if self.parquet else mask
            return pa.FixedSizeListArray.from_arrays(inner, type=kind, mask=mask)
        sizes = self._choose(range(3), count)
        total = sum(sizes)
        name = str(kind).partition("<")[0]
        width = pa.int64() if name.startswith("large") else pa.int32()
        offsets = pa.array(np.cumsum([0, *sizes]), width)
        if name == "map":
            keys = self._slice(kind.key_type, total, False)
            items = self._slice(kind.item_type, total, nulls)
            return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=mask)
        inner = self._slice(kind.value_type, total, nulls)
        if name.endswith("list_view"):
            # In any order; several may refer to the same values.
            starts = [self._random.randint(0, total - size) for size in sizes]
            places = pa.array(starts, width), pa.array(sizes, width)
            cls = {"list_view": pa.ListViewArray}.get(name, pa.LargeListViewArray)
            return cls.from_arrays(*places, inner, type=kind, mask=mask)
        cls = {"list": pa.ListArray}.get(name, pa.LargeListArray)
        return cls.from_arrays(offsets, inner, type=kind, mask=mask)


def as_python(value):
    """Return a value that is equal for equal content, from ours or from pyarrow."""
    if isinstance(value, np.ndarray):
        return [as_python(item) for item in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        if np.isnat(value):
            return None
        nanoseconds = value.astype(f"{value.dtype.kind}8[ns]").astype(np.int64)
        return "time", int(nanoseconds)
    if isinstance(value, (pandas.Timestamp, pandas.Timedelta)):
        return "time", value.as_unit("ns").value
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, datetime.date):
        return as_python(np.datetime64(value))
    if isinstance(value, datetime.timedelta):
        return as_python(np.timedelta64(value))
    if isinstance(value, dict):
        return {name: as_python(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(as_python, value))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and np.isnan(value):
        return None
    known = (int, float, str, bytes, decimal.Decimal, datetime.time, uuid.UUID, tuple)
    assert value is None or isinstance(value, known), type(value)
    return value


def spoil(value):
    """Change a value in place if possible."""
    if isinstance(value, np.ndarray):
        for place, item in enumerate(value):
            spoil(item)
            value[place] = None if value.dtype.hasobject else np.zeros((), value.dtype)
    elif isinstance(value, dict):
        for name in value:
            spoil(value[name])
            value[name] = "spoilt"
    elif type(value) in (list, tuple):
        for item in value:
            spoil(item)
        if type(value) is list:
            value.append("spoilt")
