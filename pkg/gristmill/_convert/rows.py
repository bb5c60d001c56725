"""Converts rows of tables and JSON objects to records.

In a tf.train.Example, numbers, texts and byte strings, and lists of one kind of these,
become features with their names.  Missing or null values have no feature.  The fields
of a nested object become features ``outer/inner``.  In JSON, any value is written in
one line.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from gristmill._convert.errors import ConversionError, import_optional
from gristmill._convert.examples import (
    bytes_features,
    example,
    float_features,
    int64_features,
)

Encoding: TypeAlias = Literal["example", "json"]

HINT = "Convert with --encode json to keep it."


def json_of_row(row: Any) -> bytes:
    """Return a row as a line of JSON; byte strings become base64, times text."""
    return json.dumps(
        row, ensure_ascii=False, separators=(",", ":"), default=_text_of
    ).encode()


def _text_of(value: Any) -> str:
    """Return a value that JSON cannot represent as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def example_of_object(value: Any) -> bytes:
    """Return a JSON object as tf.train.Example.

    Raises:
        ConversionError: It is not an object, or has a value that a feature cannot hold.
    """
    if not isinstance(value, dict):
        raise ConversionError(
            f"expected a JSON object, got a {_kind_of(value)}. {HINT}"
        )
    return example(_features(value, ""))


def _features(fields: Mapping[str, Any], outer: str) -> Iterator[bytes]:
    for key, value in fields.items():
        name = outer + key
        if value is None or value == []:  # The type of an empty list is unknown.
            continue
        if isinstance(value, dict):
            yield from _features(value, name + "/")
            continue
        values = value if isinstance(value, list) else [value]
        yield from _features_of_values(name, values)


def _features_of_values(name: str, values: list[Any]) -> list[bytes]:
    kinds = {type(value) for value in values}
    try:
        if kinds <= {int, bool}:
            return int64_features(name, values)
        if kinds <= {int, bool, float}:
            return float_features(name, values)
    except OverflowError as error:
        raise ConversionError(f"{name!r}: {error}. {HINT}") from None
    if kinds == {str}:
        return bytes_features(name, [value.encode() for value in values])
    found = " and ".join(sorted({_kind_of(value) for value in values}))
    raise ConversionError(
        f"{name!r} must be a list of numbers or of texts, got {found}. {HINT}"
    )


def _kind_of(value: Any) -> str:
    """Return the name of a JSON value's type, for errors."""
    names = {dict: "object", list: "list", str: "text", type(None): "null"}
    return names.get(type(value), "number")


def examples_of_table(batch: Any) -> Iterator[bytes]:
    """Yield the rows of a pyarrow RecordBatch as tf.train.Example.

    Raises:
        ConversionError: A column has a type that a feature cannot hold.
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
    """Yield the encoded rows of each feature of a column; b"" for missing values."""
    pa = import_optional("pyarrow")
    if _is(values.type, "dictionary"):
        values = values.dictionary_decode()
    if _is(values.type, "struct"):
        for field, inner in zip(values.type, values.flatten(), strict=True):
            yield from _columns(f"{name}/{field.name}", inner)
        return
    flat, counts = _flatten(values)
    if flat.null_count:
        raise ConversionError(f"column {name!r} has a list with a null in it. {HINT}")
    limits = [0, *itertools.accumulate(counts)]
    try:
        features = _features_of_column(name, flat, limits)
    except pa.ArrowInvalid as error:
        raise ConversionError(f"column {name!r}: {error}. {HINT}") from None
    valid = values.is_valid().to_pylist()
    yield [
        feature if is_valid else b""
        for feature, is_valid in zip(features, valid, strict=True)
    ]


def _flatten(values: Any) -> tuple[Any, list[int]]:
    """Return the concatenated values of all rows, and the number in each row."""
    if not _is(values.type, "list large_list fixed_size_list"):
        return values.drop_null(), values.is_valid().cast("int64").to_pylist()
    counts = import_optional("pyarrow.compute").list_value_length(values)
    return values.flatten(), counts.fill_null(0).to_pylist()


def _features_of_column(name: str, flat: Any, limits: list[int]) -> list[bytes]:
    pa = import_optional("pyarrow")
    kind = flat.type
    if _is(kind, "integer boolean null"):
        numbers = flat.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return int64_features(name, numbers, limits)
    if _is(kind, "floating"):
        return float_features(name, flat.to_numpy(zero_copy_only=False), limits)
    # Let Arrow convert these to text: Python would write fewer digits.
    if _is(kind, "date time timestamp decimal"):
        flat = flat.cast(pa.string())
    if _is(flat.type, "string large_string"):
        flat = flat.cast(pa.large_binary())
    if not _is(flat.type, "binary large_binary fixed_size_binary"):
        raise ConversionError(
            f"column {name!r} must have numbers, texts, byte strings or lists of these,"
            f" got type {kind}. {HINT}"
        )
    return bytes_features(name, flat.to_pylist(), limits)


def _is(kind: Any, names: str) -> bool:
    """Return whether a pyarrow type has one of the given names."""
    types = import_optional("pyarrow").types
    return any(getattr(types, f"is_{name}")(kind) for name in names.split())
