"""Reads the texts of documents from records of any kind."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from gristmill import errors
from gristmill._convert.errors import ConversionError
from gristmill._convert.inputs import Input, ParquetFileInput
from gristmill.transforms import ParseExample

RecordForm: TypeAlias = Literal["json", "example", "text"]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class ParquetColumnInput(ParquetFileInput):
    """A column of a Parquet file; a record is a value as bytes, or None."""

    column: str

    def columns(self, file: Any) -> list[str]:
        names = file.schema_arrow.names
        if self.column not in names:
            raise ConversionError(
                f"{self.path}: this file has no column {self.column!r}. Pass --field"
                f" with one of: {', '.join(names)}."
            )
        return [self.column]

    def encode(self, batch: Any) -> Iterator[Any]:
        import pyarrow

        values = batch.column(0)
        if pyarrow.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        try:
            # As bytes, because pyarrow's error does not name the row that is not UTF-8.
            yield from values.cast(pyarrow.large_binary()).to_pylist()
        except pyarrow.ArrowNotImplementedError:
            raise ConversionError(
                f"{self.path}: column {self.column!r} must contain texts, got"
                f" {values.type}."
            ) from None


@dataclasses.dataclass(frozen=True)
class TextInput(Input):
    """The texts in the records of another input.

    Attributes:
        source: The other input.
        form: What a record of it is: a JSON object, a tf.train.Example, or the text.
        field: The field of an object or an Example that has the text.
    """

    source: Input = dataclasses.field(compare=False)  # In `identity`.
    form: RecordForm
    field: str

    def count(self) -> int:
        return self.source.count()

    def records(self, first: int) -> Iterator[str]:
        parse = _PARSERS[self.form]
        for position, record in enumerate(self.source.records(first), first):
            try:
                yield parse(record, self.field)
            except ValueError as error:
                place = self.source.place(position)
                raise ConversionError(f"{self.path}: {place}: {error}") from None

    def can_seek(self) -> bool:
        return self.source.can_seek()

    def with_index_dir(self, folder: str) -> TextInput:
        source = self.source.with_index_dir(folder)
        return dataclasses.replace(self, source=source)

    def place(self, position: int) -> str:
        return self.source.place(position)

    def size(self) -> int:
        return self.source.size()

    def identity(self) -> dict[str, Any]:
        return {"source": type(self.source).__name__, **self.source.identity()}


def _parse_json(record: bytes, field: str) -> str:
    try:
        # Not `loads` of bytes, which would accept UTF-16.
        value = json.loads(record.removeprefix(BYTE_ORDER_MARK).decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: {error}. Fix or remove it.") from None
    except UnicodeDecodeError as error:
        raise ValueError(_not_utf8(error)) from None
    except RecursionError:
        raise ValueError("this JSON is nested too deeply. Remove it.") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {_kind_of(value)}.")
    try:
        text = value[field]
    except KeyError:
        raise ValueError(_no_field(field, list(value))) from None
    if not isinstance(text, str):
        raise ValueError(f"field {field!r} must be a text, got {_kind_of(text)}.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"field {field!r} has half of a surrogate pair at character"
                f" {error.start}, which UTF-8 cannot represent. Fix or remove it."
            ) from None
    return text


def _parse_example(record: bytes, field: str) -> str:
    try:
        features = _example_parser().map(record)
    except errors.CorruptRecord as error:
        raise ValueError(f"{error}. Pass --records if it is JSON or a text.") from None
    if field not in features:
        raise ValueError(_no_field(field, list(features)))
    values = features[field]
    if values.dtype != object or len(values) != 1:
        raise ValueError(
            f"feature {field!r} must be a list of one byte string, got {len(values)}"
            f" values of {'bytes' if values.dtype == object else values.dtype}."
        )
    return _parse_text(values[0], field)


def _parse_text(record: bytes | None, field: str) -> str:
    if record is None:
        raise ValueError(f"field {field!r} must be a text, got null.")
    try:
        return record.decode()
    except UnicodeDecodeError as error:
        raise ValueError(_not_utf8(error)) from None


_PARSERS: dict[RecordForm, Any] = {
    "json": _parse_json,
    "example": _parse_example,
    "text": _parse_text,
}


@functools.cache
def _example_parser() -> ParseExample:
    return ParseExample()


def _not_utf8(error: UnicodeDecodeError) -> str:
    return (
        f"expected UTF-8, found the byte 0x{error.object[error.start]:02x} at byte"
        f" {error.start} ({error.reason}). Fix or remove it."
    )


def _no_field(field: str, names: list[str]) -> str:
    found = ", ".join(map(repr, names)) or "none"
    return f"there is no field {field!r}. Pass --field with one of: {found}."


def _kind_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return names.get(type(value), f"{value!r}")
