"""Adds up the contents of the files in a folder."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from gristmill._cli.contents import Contents, Sizes, sizes_of
from gristmill._convert.inputs import reading, top_folder
from gristmill._convert.paths import stat_regular

# The most texts to show if a text differs between files.
MAX_TEXTS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Totals(Contents):
    """The totals of all files of one format below a folder.

    Attributes:
        files: The number of files.
        other_files: The number of files of unknown format in the folder.
    """

    files: int
    other_files: int = 0


def add_up(
    folder: str, contents: Sequence[Contents], head: int, other_files: int
) -> Totals:
    """Add up the contents of files of one format.

    Args:
        folder: The folder that contains the files.
        contents: The contents of each file, at least one.
        head: The number of leading records to keep.
        other_files: The number of files of unknown format in the folder.
    """
    chunks = [each.chunks for each in contents if each.chunks is not None]
    groups = [each.group_size for each in contents if each.group_size is not None]
    return Totals(
        path=folder,
        format=contents[0].format,
        files=len(contents),
        other_files=other_files,
        file_bytes=sum(each.file_bytes for each in contents),
        records=sum(each.records for each in contents),
        chunks=sum(chunks) if chunks else None,
        group_size=max(groups, default=None),
        details=_merge_details(contents),
        sizes=_merge_sizes(contents),
        verified=contents[0].verified,
        damaged=[damage for each in contents for damage in each.damaged],
        head=[record for each in contents for record in each.head][:head],
    )


def add_up_plain_files(folder: str, paths: Sequence[str], head: int) -> Totals:
    """Add up files that are each one record, such as images.

    Args:
        folder: The folder that contains the files.
        paths: The files, at least one.
        head: The number of leading files to read.
    """
    sizes = np.array([stat_regular(path).st_size for path in paths], np.int64)
    head_records = []
    for path in paths[:head]:
        with reading(path), open(path, "rb") as file:
            head_records.append(file.read())
    classes = sorted({top_folder(os.path.relpath(path, folder)) for path in paths})
    return Totals(
        path=folder,
        format="files, each a record",
        files=len(paths),
        file_bytes=int(sizes.sum()),
        records=len(paths),
        details={"folders": _join_texts([name for name in classes if name])},
        sizes=sizes_of(sizes, len(paths)),
        verified=False,
        head=head_records,
    )


def _merge_details(contents: Sequence[Contents]) -> dict[str, str]:
    """Merge the details of all files. Each different text appears once."""
    # Maps each name to its different texts, in order.
    texts: dict[str, dict[str, None]] = {}
    for each in contents:
        for name, text in each.details.items():
            texts.setdefault(name, {})[text] = None
    return {name: _join_texts([*values]) for name, values in texts.items()}


def _join_texts(texts: Sequence[str]) -> str:
    if len(texts) <= 1:
        return "".join(texts)
    more = "; ..." if len(texts) > MAX_TEXTS else ""
    return f"{len(texts)} different: {'; '.join(texts[:MAX_TEXTS])}{more}"


def _merge_sizes(contents: Sequence[Contents]) -> Sizes | None:
    known = [each.sizes for each in contents if each.sizes is not None]
    if not known:
        return None
    histogram: collections.Counter[int] = collections.Counter()
    for sizes in known:
        histogram.update(dict(sizes.histogram))
    exponents = range(min(histogram).bit_length() - 1, max(histogram).bit_length())
    counted = sum(sizes.counted for sizes in known)
    total = sum(sizes.total for sizes in known)
    return Sizes(
        counted=counted,
        exact=counted == sum(each.records for each in contents),
        total=total,
        least=min(sizes.least for sizes in known),
        median=None if len(known) > 1 else known[0].median,
        mean=total / counted,
        most=max(sizes.most for sizes in known),
        histogram=[(2**exponent, histogram[2**exponent]) for exponent in exponents],
    )
