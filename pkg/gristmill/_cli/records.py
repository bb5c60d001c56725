"""Formats a record for display: an Example, JSON, text, or bytes of a known kind."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from gristmill import errors, transforms
from gristmill._cli.terminal import format_bytes

# Records that start like this are files of a known kind.
SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"GIF8", "GIF image"),
    (b"\x93NUMPY", "NumPy array"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip data"),
)
# The most values of a feature, and bytes of a record, to show.
MAX_VALUES, MAX_BYTES = 4, 24


class RecordText(NamedTuple):
    """The kind of a record, and its contents in readable form.

    The JSON output of `inspect` contains fields of these names.
    """

    kind: str
    text: str


def describe_record(record: bytes) -> RecordText:
    """Return a record's kind and contents, in one line of any length."""
    if not record:
        return RecordText("bytes", "empty")
    for signature, name in SIGNATURES:
        if record.startswith(signature):
            return RecordText("bytes", f"{name}, {format_bytes(len(record))}")
    features = _parse_features(record)
    if features:
        fields = [
            f"{name}: {_describe_values(values)}" for name, values in features.items()
        ]
        return RecordText("example", "{" + ", ".join(fields) + "}")
    text = _decode_text(record)
    if text is None:
        more = "..." if len(record) > MAX_BYTES else ""
        return RecordText(
            "bytes", f"{format_bytes(len(record))}: {record[:MAX_BYTES].hex(' ')}{more}"
        )
    if text.lstrip()[:1] in ("{", "[") and _is_json(text):
        return RecordText("json", " ".join(text.split()))
    return RecordText("text", repr(text))


def _parse_features(record: bytes) -> dict[str, Any]:
    """Return the features of an Example, or {} if the record is not an Example."""
    try:
        return transforms.ParseExample().map(record)
    except errors.CorruptRecord:
        return {}


def _decode_text(record: bytes) -> str | None:
    """Return a record as text; None if it is not UTF-8, or has control characters."""
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\n\r\t" for c in text) else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _describe_values(values: Any) -> str:
    """Return a feature's type and first values."""
    texts = [_describe_value(value) for value in values[:MAX_VALUES]]
    kind = "bytes" if values.dtype == object else values.dtype.name
    more = ", ..." if len(values) > MAX_VALUES else ""
    return f"{kind}[{len(values)}] ({', '.join(texts)}{more})"


def _describe_value(value: Any) -> str:
    if isinstance(value, bytes):
        text = _decode_text(value)
        if text is None or len(text) > 2 * MAX_BYTES:
            return (
                describe_record(value).text
                if text is None
                else repr(text[:MAX_BYTES]) + "..."
            )
        return repr(text)
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)
