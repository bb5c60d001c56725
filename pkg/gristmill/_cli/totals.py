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
MOST_TEXTS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Totals(Contents):
    """The totals of all files of one format below a folder.

    Attributes:
        files: The number of files.
        other_files: The number of files of unknown format in the folder.
    """

    files: int
    other_files: int = 0


def totals(
    folder: str, found: Sequence[Contents], head: int, other_files: int
) -> Totals:
    """Add up the contents of files of one format.

    Args:
        folder: The folder that contains the files.
        found: The contents of each file, at least one.
        head: The number of leading records to keep.
        other_files: The number of files of unknown format in the folder.
    """
    chunks = [each.chunks for each in found if each.chunks is not None]
    groups = [each.group_size for each in found if each.group_size is not None]
    return Totals(
        path=folder,
        format=found[0].format,
        files=len(found),
        other_files=other_files,
        file_bytes=sum(each.file_bytes for each in found),
        records=sum(each.records for each in found),
        chunks=sum(chunks) if chunks else None,
        group_size=max(groups, default=None),
        details=_details(found),
        sizes=_sizes(found),
        verified=found[0].verified,
        damaged=[damage for each in found for damage in each.damaged],
        head=[record for each in found for record in each.head][:head],
    )


def totals_of_plain(folder: str, paths: Sequence[str], head: int) -> Totals:
    """Add up files that are each one record, such as images.

    Args:
        folder: The folder that contains the files.
        paths: The files, at least one.
        head: The number of leading files to read.
    """
    sizes = np.array([stat_regular(path).st_size for path in paths], np.int64)
    first = []
    for path in paths[:head]:
        with reading(path), open(path, "rb") as file:
            first.append(file.read())
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
        head=first,
    )


def _details(found: Sequence[Contents]) -> dict[str, str]:
    """Merge the details of all files. Each different text appears once."""
    texts: dict[str, dict[str, None]] = {}
    for each in found:
        for name, text in each.details.items():
            texts.setdefault(name, {})[text] = None
    return {name: _join_texts([*some]) for name, some in texts.items()}


def _join_texts(texts: Sequence[str]) -> str:
    if len(texts) <= 1:
        return "".join(texts)
    more = "; ..." if len(texts) > MOST_TEXTS else ""
    return f"{len(texts)} different: {'; '.join(texts[:MOST_TEXTS])}{more}"


def _sizes(found: Sequence[Contents]) -> Sizes | None:
    known = [each.sizes for each in found if each.sizes is not None]
    if not known:
        return None
    histogram: collections.Counter[int] = collections.Counter()
    for sizes in known:
        histogram.update(dict(sizes.histogram))
    limits = range(min(histogram).bit_length() - 1, max(histogram).bit_length())
    counted = sum(sizes.counted for sizes in known)
    total = sum(sizes.total for sizes in known)
    return Sizes(
        counted=counted,
        exact=counted == sum(each.records for each in found),
        total=total,
        least=min(sizes.least for sizes in known),
        median=None if len(known) > 1 else known[0].median,
        mean=total / counted,
        most=max(sizes.most for sizes in known),
        histogram=[(2**e, histogram[2**e]) for e in limits],
    )
