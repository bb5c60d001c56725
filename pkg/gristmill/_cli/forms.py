"""Detects the format of files passed to `bench` and `inspect`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

from gristmill._convert import finding
from gristmill._convert.errors import CommandError
from gristmill._convert.inputs import reading
from gristmill._convert.paths import files_below

# The formats that `convert` accepts, and those that only data sources read.
Form: TypeAlias = finding.Format | Literal["tar", "bag"]
NAMES: dict[str, Form] = {".tar": "tar", ".bagz": "bag", ".bag": "bag"}
# A tar file has this magic at this offset.
TAR_OFFSET, TAR_MARK = 257, b"ustar"


def form_of_name(path: str) -> Form | None:
    """Return the format that a file's name implies, or None."""
    return NAMES.get(os.path.splitext(path)[1]) or finding.name_format_of(path)


def form_of(path: str, choices: Sequence[finding.Format] = ()) -> Form:
    """Return the format of a file by its name, or if that fails by its content.

    Args:
        path: The file.
        choices: The values of the command's --from option; empty if it has none.

    Raises:
        CommandError: Neither determines the format.
    """
    form = form_of_name(path)
    if form is not None:
        return form
    with reading(path), open(path, "rb") as file:
        file.seek(TAR_OFFSET)
        if file.read(len(TAR_MARK)) == TAR_MARK:
            return "tar"
    return finding.format_of(path, choices)


def files_by_form(folder: str) -> tuple[dict[Form, list[str]], list[str]]:
    """Return the files below a folder by format, and the files of unknown format.

    Contents are checked only if no file name implies a format: text files next to
    shards may look like JSON lines.

    Raises:
        CommandError: The folder contains no files, or cannot be read.
    """
    below = files_below(folder, follow_links=True)
    if not below:
        raise CommandError(f"{folder}: this folder contains no files.")
    paths = [os.path.join(folder, name) for name in below]
    found: dict[Form, list[str]] = {}
    others = []
    by_name = any(map(form_of_name, paths))
    for path in paths:
        form = form_of_name(path) if by_name else _form_of_content(path)
        if form is None:
            others.append(path)
        else:
            found.setdefault(form, []).append(path)
    return found, others


def _form_of_content(path: str) -> Form | None:
    if not os.path.isfile(path):
        return None
    try:
        return form_of(path)
    except CommandError:
        return None
