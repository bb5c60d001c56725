"""Finds the inputs of a command, and detects their formats."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, get_args

from gristmill._convert.errors import ConversionError, UsageError
from gristmill._convert.inputs import (
    ArrayRecordInput,
    FolderInput,
    Input,
    ParquetInput,
    TFRecordInput,
    reading,
)
from gristmill._convert.line_inputs import JsonLinesInput, LinesInput
from gristmill._convert.paths import broken_link_error, files_below, stat_regular
from gristmill._convert.rows import Encoding
from gristmill._convert.text_inputs import ParquetColumnInput, RecordForm, TextInput

Format: TypeAlias = Literal[
    "tfrecord", "parquet", "jsonl", "lines", "array_record", "files"
]
FORMATS: tuple[Format, ...] = get_args(Format)

# Parts of file names that imply a format, in the order of checking.
FORMATS_BY_NAME_PART: tuple[tuple[str, Format], ...] = (
    ("tfrec", "tfrecord"),
    (".array_record", "array_record"),
    (".arrayrecord", "array_record"),
    (".parquet", "parquet"),
    (".jsonl", "jsonl"),
    (".ndjson", "jsonl"),
)
# The first bytes of every ArrayRecord file.
ARRAY_RECORD_START = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000")


def expand(names: Iterable[str]) -> list[str]:
    """Expand a user's arguments to paths. The matches of a pattern are sorted."""
    files_below.cache_clear()
    paths = []
    for name in names:
        check_local(name)
        if os.path.exists(name):
            paths.append(name)
        elif os.path.islink(name):
            raise broken_link_error(name)
        elif glob.has_magic(name):
            matches = sorted(glob.glob(name, recursive=True))
            if not matches:
                raise ConversionError(f"{name}: no file matches this pattern.")
            paths += matches
        else:
            raise ConversionError(f"{name}: there is no such file or folder.")
    return paths


def check_local(path: str) -> None:
    """Raise ConversionError for a URL, because commands only open local files."""
    if "://" in path:
        raise ConversionError(
            f"{path}: expected a file on a disk, got a URL. Copy or mount it, or use"
            " gristmill.beam, which converts files on cloud storage."
        )


def inputs_of(
    paths: Sequence[str],
    file_format: Format | None,
    encoding: Encoding | None,
    with_names: bool,
    follow_links: bool,
    text_column: str | None = None,
) -> list[Input]:
    """Return the inputs at some paths.

    Args:
        paths: Files and folders. If all files of a folder have the same known format,
            they are the inputs; if all formats are unknown, each file is a record.
        file_format: The format of all inputs. None detects the format of each file.
        encoding: How to encode Parquet rows and JSON lines. None is "example" for rows,
            and does not change lines.
        with_names: Whether to record the names of files in folders.
        follow_links: Whether links in folders may lead out of them.
        text_column: The column of Parquet files to read, and JSON lines are read as
            they are; None to encode rows and lines.

    Raises:
        ConversionError: A format cannot be detected, a link leads out of a folder, or a
            path is not a regular file or a folder.
        UsageError: An option does not apply to any of the inputs.
    """
    inputs: list[Input] = []
    folders = {path for path in paths if os.path.isdir(path)}
    for path in paths:
        if path not in folders:
            inputs.append(_input_of(path, file_format, encoding, text_column))
            continue
        files = [os.path.join(path, name) for name in files_below(path, follow_links)]
        formats = {format_by_name(file) for file in files}
        if file_format == "files" or (file_format is None and formats == {None}):
            inputs.append(FolderInput(path, with_names, follow_links))
            continue
        if file_format is None and len(formats) > 1:
            for file in files:
                stat_regular(file)
            raise ConversionError(
                f"{path}: expected a folder with files of one format, found several"
                " formats. Pass --from files to make each file a record, or pass the"
                " files of one format."
            )
        inputs += [
            _input_of(file, file_format, encoding, text_column) for file in files
        ]
    if not inputs:
        raise ConversionError(f"{paths[0]}: this folder contains no files.")
    # Raise if an option does not apply to any of the inputs.
    input_types = {type(each) for each in inputs}
    if encoding and not input_types & {ParquetInput, JsonLinesInput}:
        raise UsageError("--encode needs Parquet or JSON lines as input, found none.")
    if with_names and FolderInput not in input_types:
        raise UsageError("--with-names needs a folder of files as input, found none.")
    if follow_links and not folders:
        raise UsageError("--follow-links needs a folder as input, found none.")
    return inputs


def _input_of(
    path: str,
    file_format: Format | None,
    encoding: Encoding | None,
    text_column: str | None,
) -> Input:
    stat_regular(path)
    file_format = file_format or detect_format(path)
    if file_format == "files":
        raise ConversionError(f"{path}: --from files needs a folder, found a file.")
    if file_format == "parquet":
        if text_column is not None:
            return ParquetColumnInput(path, text_column)
        return ParquetInput(path, encoding or "example")
    if file_format == "jsonl" and text_column is None:
        return JsonLinesInput(path, encoding or "json")
    if file_format in ("jsonl", "lines"):
        return LinesInput(path)
    return (
        ArrayRecordInput(path) if file_format == "array_record" else TFRecordInput(path)
    )


def texts_of(
    inputs: Sequence[Input],
    file_format: Format | None,
    form: RecordForm | None,
    field: str,
) -> list[Input]:
    """Return the texts in the records of inputs.

    Args:
        inputs: Inputs from `inputs_of` with a `text_column`.
        file_format: The format of all inputs, as passed to `inputs_of`.
        form: What a record of ArrayRecord and TFRecord files is. None is "json" for
            ArrayRecord and "example" for TFRecord.
        field: The field of objects and Examples that has the text.

    Raises:
        UsageError: `form` does not apply to any of the inputs.
    """
    texts: list[Input] = []
    has_form = False
    for source in inputs:
        actual_form: RecordForm = "text"
        if isinstance(source, (ArrayRecordInput, TFRecordInput)):
            has_form = True
            is_example = isinstance(source, TFRecordInput)
            actual_form = form or ("example" if is_example else "json")
        elif isinstance(source, LinesInput):
            actual_form = "text" if file_format == "lines" else "json"
        texts.append(TextInput(source.path, source, actual_form, field))
    if form and not has_form:
        raise UsageError(
            "--records needs ArrayRecord or TFRecord as input, found none."
        )
    return texts


def format_by_name(path: str) -> Format | None:
    """Return the format that a file's name implies, or None."""
    name = os.path.basename(path)
    return next(
        (file_format for part, file_format in FORMATS_BY_NAME_PART if part in name),
        None,
    )


def detect_format(path: str, choices: Sequence[Format] = FORMATS) -> Format:
    """Return the format of a file by its name, or if that fails by its first bytes.

    Args:
        path: The file.
        choices: The values of the command's --from option; empty if it has none.

    Raises:
        ConversionError: Neither determines the format.
    """
    file_format = format_by_name(path)
    if file_format:
        return file_format
    with reading(path), open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(ARRAY_RECORD_START):
        return "array_record"
    if start.lstrip().startswith(b"{"):
        return "jsonl"
    if TFRecordInput(path).begins_with_record():
        return "tfrecord"
    advice = (
        f"Pass --from {'|'.join(choices)}."
        if choices
        else "Give it a name that does, such as x.tfrecord or x.array_record."
    )
    raise ConversionError(
        f"{path}: neither the name nor the first bytes imply the format. {advice}"
    )
