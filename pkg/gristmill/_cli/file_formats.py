"""Detects the format of files passed to `bench` and `inspect`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from gristmill._convert import finding
from gristmill._convert.errors import CommandError
from gristmill._convert.inputs import reading
from gristmill._convert.paths import files_below

# A format that `convert` accepts, or one that only data sources read.
AnyFormat: TypeAlias = finding.Format | Literal["tar", "bag"]
FORMATS_BY_SUFFIX: dict[str, AnyFormat] = {".tar": "tar", ".bagz": "bag", ".bag": "bag"}
# A tar file has this magic at this offset.
TAR_OFFSET, TAR_MAGIC = 257, b"ustar"


def format_by_name(path: str) -> AnyFormat | None:
    """Return the format that a file's name implies, or None."""
    return FORMATS_BY_SUFFIX.get(os.path.splitext(path)[1]) or finding.format_by_name(
        path
    )


def detect_format(path: str, choices: Sequence[finding.Format] = ()) -> AnyFormat:
    """Return the format of a file by its name, or if that fails by its content.

    Args:
        path: The file.
        choices: The values of the command's --from option; empty if it has none.

    Raises:
        CommandError: Neither determines the format.
    """
    file_format = format_by_name(path)
    if file_format is not None:
        return file_format
    with reading(path), open(path, "rb") as file:
        file.seek(TAR_OFFSET)
        if file.read(len(TAR_MAGIC)) == TAR_MAGIC:
            return "tar"
    return finding.detect_format(path, choices)


def group_by_format(
    folder: str, known: Collection[str] = ()
) -> tuple[dict[AnyFormat, list[str]], list[str]]:
    """Return the files below a folder by format, and the files of unknown format.

    Contents are checked only if no file name implies a format: text files next to
    shards may look like JSON lines.

    Args:
        folder: The folder.
        known: The paths of files to leave out.

    Raises:
        CommandError: The folder contains no files, or cannot be read.
    """
    names = files_below(folder, follow_links=True)
    if not names:
        raise CommandError(f"{folder}: this folder contains no files.")
    paths = [os.path.join(folder, name) for name in names]
    paths = [path for path in paths if path not in known]
    paths_by_format: dict[AnyFormat, list[str]] = {}
    others = []
    any_name_implies_format = any(map(format_by_name, paths))
    for path in paths:
        if any_name_implies_format:
            file_format = format_by_name(path)
        else:
            file_format = _detect_by_content(path)
        if file_format is None:
            others.append(path)
        else:
            paths_by_format.setdefault(file_format, []).append(path)
    return paths_by_format, others


def _detect_by_content(path: str) -> AnyFormat | None:
    """Return the format of a file; None if it is unknown, or not a file to read."""
    if not os.path.isfile(path):
        return None
    try:
        return detect_format(path)
    except CommandError:
        return None
