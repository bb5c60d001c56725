"""``gristmill inspect``: shows the contents of files and verifies them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from typing import Any

from gristmill._base.progress_bar import new_display
from gristmill._cli import contents
from gristmill._cli.file_formats import detect_format, group_by_format
from gristmill._cli.records import describe_record
from gristmill._cli.terminal import (
    STYLE,
    draw_bar,
    format_bytes,
    format_count,
    format_table,
    integer_parser,
)
from gristmill._cli.totals import Totals, add_up, add_up_plain_files
from gristmill._convert import finding
from gristmill._convert.errors import CommandError
from gristmill._convert.paths import files_below, stat_regular

DESCRIPTION = """\
Show the contents of files: the number of records and chunks, how they were written, the
sizes of records, and the first ones.  Supports ArrayRecord, TFRecord (plain, gzip or
zlib), Parquet, JSON lines, tar and Bagz.  For a folder, show the totals of the files of
each format, or of all files if none has such a format, for example images.

With --verify, read every record and verify its checksum.  Damaged records are listed
with their positions, and the exit status is 1 if there are any.
"""

EPILOG = """\
examples:
  gristmill inspect train.array_record
  gristmill inspect out/
  gristmill inspect out/train-* --verify --head 0
  gristmill inspect 'data/*.tfrecord' --json | jq .records
"""
BAR_COLUMNS = 40


def add_to(commands: Any) -> None:
    """Add the command to the parser of `gristmill`."""
    purpose = "show the contents of files, and verify their records"
    parser = commands.add_parser(
        "inspect", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="a file, a folder, or a 'pattern*'")
    add(
        "--verify",
        action="store_true",
        help="read every record, and list the damaged ones",
    )
    add(
        "--head",
        type=integer_parser(0),
        default=3,
        metavar="N",
        help="number of first records to show (default: %(default)s)",
    )
    add(
        "--from",
        dest="file_format",
        choices=contents.FORMATS,
        metavar="FORMAT",
        help="format of the files: " + ", ".join(contents.FORMATS) + " (default:"
        " detected by name or content)",
    )
    add(
        "--json",
        action="store_true",
        help="print a JSON object on one line for each file or folder",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the contents of each file and folder; return 1 if any has a problem."""
    printer = _Printer(arguments.json)
    for path in finding.expand(arguments.files):
        if os.path.isdir(path):
            _inspect_folder(path, arguments, printer)
        elif found := _examine(path, arguments, printer):
            printer.show(found)
    return 1 if printer.has_problems else 0


class _Printer:
    """Prints contents of files, and problems.

    Attributes:
        has_problems: Whether any file is damaged or unreadable.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        # The number of files and folders printed so far.
        self._shown_count = 0
        self.has_problems = False

    def show(self, found: contents.Contents) -> None:
        if self._shown_count and not self._as_json:
            print()
        self._shown_count += 1
        self.has_problems |= bool(found.damaged)
        print(_as_json(found) if self._as_json else _as_text(found))

    def show_problem(self, path: str, problem: CommandError) -> None:
        self.has_problems = True
        sys.stdout.flush()
        if self._as_json:
            print(json.dumps({"path": path, "error": str(problem)}))
        else:
            print(f"gristmill: {problem}", file=sys.stderr)


def _examine(
    path: str, arguments: argparse.Namespace, printer: _Printer
) -> contents.Contents | None:
    """Return the contents of a file; if that fails, show the problem."""
    progress = new_display()
    try:
        stat_regular(path)
        file_format = arguments.file_format or detect_format(path, contents.FORMATS)
        return contents.examine(
            path, file_format, arguments.head, arguments.verify, progress
        )
    except CommandError as problem:
        printer.show_problem(path, problem)
        return None
    finally:
        progress.end()


def _inspect_folder(
    folder: str, arguments: argparse.Namespace, printer: _Printer
) -> None:
    """Show a summary for each format of the files below a folder."""
    if arguments.file_format:
        names = files_below(folder, follow_links=True)
        if not names:
            raise CommandError(f"{folder}: this folder contains no files.")
        paths = [os.path.join(folder, name) for name in names]
        paths_by_format = {arguments.file_format: paths}
        others: list[str] = []
    else:
        paths_by_format, others = group_by_format(folder)
    for paths in paths_by_format.values():
        examined = (_examine(path, arguments, printer) for path in paths)
        found = [each for each in examined if each is not None]
        if found:
            printer.show(add_up(folder, found, arguments.head, len(others)))
    if paths_by_format:
        return
    try:
        printer.show(add_up_plain_files(folder, others, arguments.head))
    except CommandError as problem:
        printer.show_problem(folder, problem)


def _as_json(found: contents.Contents) -> str:
    fields = dataclasses.asdict(found)
    fields["head"] = [
        {"bytes": len(record), **describe_record(record)._asdict()}
        for record in found.head
    ]
    return json.dumps(fields)


def _as_text(found: contents.Contents) -> str:
    rows = [("format", found.format)]
    if isinstance(found, Totals):
        others = f" (and {found.other_files:,} others)" if found.other_files else ""
        rows.append(("files", f"{found.files:,}{others}"))
    rows += [
        ("size", format_bytes(found.file_bytes)),
        ("records", f"{found.records:,}"),
    ]
    if found.chunks is not None:
        rows.append(("chunks", _format_chunks(found)))
    rows += [(name, value) for name, value in found.details.items() if value]
    if found.verified:
        verdict = "every record is whole"
        if found.damaged:
            damaged_records = sum(damage.records for damage in found.damaged)
            all_records = format_count(found.records, "record")
            verdict = f"{damaged_records:,} of {all_records} damaged, listed below"
        rows.append(("verified", verdict))
    width = max(len(name) for name, _ in rows)
    lines = [found.path, *(f"  {name:<{width}}  {value}" for name, value in rows)]
    if found.sizes:
        lines += ["", *_histogram(found.sizes)]
    if found.head:
        lines += ["", f"  first {format_count(len(found.head), 'record')}"]
        lines += [
            _record_line(number, record) for number, record in enumerate(found.head)
        ]
    if found.damaged:
        lines += ["", f"  damaged: {format_count(len(found.damaged), 'place')}"]
        lines += [f"    {damage.text}" for damage in found.damaged]
    return "\n".join(lines)


def _format_chunks(found: contents.Contents) -> str:
    text = f"{found.chunks:,}"
    if found.group_size and found.chunks:
        text += f" of {format_count(found.group_size, 'record')}"
        text += " (the last may have fewer)" if found.group_size > 1 else ""
    return text


def _histogram(sizes: contents.Sizes) -> list[str]:
    """Return the lines of a histogram of record sizes."""
    sample = "" if sizes.exact else f", of {sizes.counted:,} sampled"
    median = "" if sizes.median is None else f" median {format_bytes(sizes.median)},"
    lines = [
        f"  record sizes{sample}: least {format_bytes(sizes.least)},{median} mean"
        f" {format_bytes(sizes.mean)}, most {format_bytes(sizes.most)}"
    ]
    largest_number = max(number for _, number in sizes.histogram)
    rows = [
        (f"    < {format_bytes(limit)}", f"{number:,}")
        for limit, number in sizes.histogram
    ]
    for row, (_, number) in zip(
        format_table(rows).splitlines(), sizes.histogram, strict=True
    ):
        lines.append(
            f"{row}  {draw_bar(number / largest_number, BAR_COLUMNS)}".rstrip()
        )
    return lines


def _record_line(number: int, record: bytes) -> str:
    """Return the line of a record, cut to the width of the terminal if there is one."""
    description = describe_record(record)
    line = f"    {number}  {description.kind:<7}  {description.text}"
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else line[: columns - 3] + "..."
