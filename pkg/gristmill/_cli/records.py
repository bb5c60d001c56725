"""Formats a record for display: an Example, JSON, text, or bytes of a known kind."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from gristmill import errors, transforms
from gristmill._cli.terminal import amount

# Records that start like this are files of a known kind.
MAGIC = (
    (b"\xff\xd8\xff", "JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"GIF8", "GIF image"),
    (b"\x93NUMPY", "NumPy array"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip data"),
)
# The most values of a feature, and bytes of a record, to show.
VALUES, BYTES = 4, 24


class RecordText(NamedTuple):
    """The kind of a record, and its contents in readable form."""

    kind: str
    text: str


def show(record: bytes) -> RecordText:
    """Return a record's kind and contents, in one line of any length."""
    if not record:
        return RecordText("bytes", "empty")
    for start, name in MAGIC:
        if record.startswith(start):
            return RecordText("bytes", f"{name}, {amount(len(record))}")
    features = _features(record)
    if features:
        shown = ", ".join(f"{name}: {_values(v)}" for name, v in features.items())
        return RecordText("example", "{" + shown + "}")
    text = _text(record)
    if text is None:
        more = "..." if len(record) > BYTES else ""
        return RecordText(
            "bytes", f"{amount(len(record))}: {record[:BYTES].hex(' ')}{more}"
        )
    if text.lstrip()[:1] in ("{", "[") and _is_json(text):
        return RecordText("json", " ".join(text.split()))
    return RecordText("text", repr(text))


def _features(record: bytes) -> dict[str, Any]:
    """Return the features of an Example, or {} if the record is not an Example."""
    try:
        return transforms.ParseExample().map(record)
    except errors.CorruptRecord:
        return {}


def _text(record: bytes) -> str | None:
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


def _values(values: Any) -> str:
    """Return a feature's type and first values."""
    shown = [_value(value) for value in values[:VALUES]]
    kind = "bytes" if values.dtype == object else values.dtype.name
    more = ", ..." if len(values) > VALUES else ""
    return f"{kind}[{len(values)}] ({', '.join(shown)}{more})"


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        text = _text(value)
        if text is None or len(text) > 2 * BYTES:
            return show(value).text if text is None else repr(text[:BYTES]) + "..."
        return repr(text)
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)
