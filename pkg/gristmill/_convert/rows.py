"""Turns the rows of tables and JSON objects into records.

As tf.train.Example: numbers, texts and byte strings, and lists of one kind of these,
become features of their name; what is missing or null has no feature; the fields of
a nested object become features ``outer/inner``.  As JSON: any value, in one line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from gristmill._convert.examples import (
    bytes_feature,
    example,
    float_feature,
    int64_feature,
)
from gristmill._convert.optional import imported
from gristmill._convert.problem import Problem

__all__ = ["Encoding", "example_of_object", "examples_of_table", "json_of_row"]

Encoding: TypeAlias = Literal["example", "json"]

HINT = "Convert with --encode json to keep it."
# Encodes the values of one feature, given its name.
Encoder: TypeAlias = Callable[[str, list[Any]], bytes]


def json_of_row(row: Any) -> bytes:
    """Return a row as a line of JSON; byte strings become base64, times text."""
    return json.dumps(
        row, ensure_ascii=False, separators=(",", ":"), default=_plain
    ).encode()


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def example_of_object(value: Any) -> bytes:
    """Return a JSON object as tf.train.Example.

    Raises:
        Problem: It is no object, or has a value that no feature can hold.
    """
    if not isinstance(value, dict):
        raise Problem(f"expected a JSON object, got a {_kind_of(value)}. {HINT}")
    return example(_features(value, ""))


def _features(fields: Mapping[str, Any], outer: str) -> Iterator[bytes]:
    for key, value in fields.items():
        name = outer + key
        if value is None or value == []:  # Nothing tells what kind of list it is.
            continue
        if isinstance(value, dict):
            yield from _features(value, name + "/")
            continue
        values = value if isinstance(value, list) else [value]
        yield _feature_of_values(name, values)


def _feature_of_values(name: str, values: list[Any]) -> bytes:
    kinds = {type(value) for value in values}
    try:
        if kinds <= {int, bool}:
            return int64_feature(name, values)
        if kinds <= {int, bool, float}:
            return float_feature(name, values)
    except OverflowError as error:
        raise Problem(f"{name!r}: {error}. {HINT}") from None
    if kinds == {str}:
        return bytes_feature(name, [value.encode() for value in values])
    found = " and ".join(sorted({_kind_of(value) for value in values}))
    raise Problem(
        f"{name!r} is a list of {found}, but a feature holds numbers or texts. {HINT}"
    )


def _kind_of(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", type(None): "null"}
    return names.get(type(value), "number")


def examples_of_table(batch: Any) -> Iterator[bytes]:
    """Yield the rows of a pyarrow RecordBatch as tf.train.Example.

    Raises:
        Problem: A column is of a type that no feature can hold.
    """
    columns = [
        column
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
        for column in _columns(name, values)
    ]
    if not columns:
        yield from (example(()) for _ in range(batch.num_rows))
    for features in zip(*columns, strict=True):
        yield example(features)


def _columns(name: str, values: Any) -> Iterator[list[bytes]]:
    """Yield, for each feature of a column, what it is in each row; b"" if missing."""
    pa = imported("pyarrow")
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten(), strict=True):
            yield from _columns(f"{name}/{field.name}", inner)
        return
    listed = _is_list(values.type)
    item = values.type.value_type if listed else values.type
    encoder = _encoder(name, item)
    if _is_text(item) and not _is_string(item):
        # Text of times and decimals, which Python knows with fewer digits.
        text = pa.list_(pa.string()) if listed else pa.string()
        values = values.cast(text)
    rows = values.to_pylist()
    if not listed:
        rows = [None if value is None else [value] for value in rows]
    yield [_encoded(name, row, encoder) for row in rows]


def _encoded(name: str, row: list[Any] | None, encoder: Encoder) -> bytes:
    if row is None:
        return b""
    if None in row:
        raise Problem(f"column {name!r} has a list with a null in it. {HINT}")
    try:
        return encoder(name, row)
    except OverflowError as error:
        raise Problem(f"column {name!r}: {error}. {HINT}") from None


def _encoder(name: str, item: Any) -> Encoder:
    pa = imported("pyarrow")
    if pa.types.is_integer(item) or pa.types.is_boolean(item) or pa.types.is_null(item):
        return int64_feature
    if pa.types.is_floating(item):
        return float_feature
    if _is_binary(item):
        return bytes_feature
    if _is_text(item):
        return lambda name, values: bytes_feature(name, [v.encode() for v in values])
    raise Problem(
        f"column {name!r} is of type {item}, but a feature holds numbers, texts, byte"
        f" strings or lists of these. {HINT}"
    )


def _is_list(kind: Any) -> bool:
    pa = imported("pyarrow")
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def _is_binary(kind: Any) -> bool:
    pa = imported("pyarrow")
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_string(kind: Any) -> bool:
    pa = imported("pyarrow")
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_text(kind: Any) -> bool:
    pa = imported("pyarrow")
    return bool(
        _is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
