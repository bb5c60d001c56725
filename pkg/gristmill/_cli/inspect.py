"""``gristmill inspect``: shows the contents of files and verifies them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gristmill._base.progress_bar import new_display
from gristmill._cli import contents, token_contents, token_sets
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
from gristmill._cli.token_contents import Document, TokenContents
from gristmill._cli.totals import Totals, add_up, add_up_plain_files
from gristmill._convert import finding
from gristmill._convert.errors import CommandError, UsageError
from gristmill._convert.paths import files_below, stat_regular

DESCRIPTION = """\
Show the contents of files: the number of records and chunks, how they were written, the
sizes of records, and the first ones.  Supports ArrayRecord, TFRecord (plain, gzip or
zlib), Parquet, JSON lines, tar and Bagz.  For a folder, show the totals of the files of
each format, or of all files if none has such a format, for example images.

Of files of tokens, show the documents, the tokens and the lengths, and the ids or the
texts of the first documents.  FILE is a prefix or a file of Megatron, the OUT or a file
of `gristmill tokenize`, or an array of tokens with --dtype and --eos.

With --verify, read every record and verify its checksum.  Damaged records are listed
with their positions, and the exit status is 1 if there are any.  Files of tokens are
compared with the manifest of `gristmill tokenize`.
"""

EPILOG = """\
examples:
  gristmill inspect train.array_record
  gristmill inspect out/
  gristmill inspect out/train-* --verify --head 0
  gristmill inspect 'data/*.tfrecord' --json | jq .records
  gristmill inspect out/train --tokenizer tokenizer.json
  gristmill inspect part-00.npy --dtype uint16 --eos 0
"""
# The width of a bar if the output is not a terminal, and the least in a terminal.
BAR_COLUMNS, MIN_BAR_COLUMNS = 40, 10
# The most ids of a document, and characters of its text, to show.
MAX_IDS, MAX_CHARACTERS = 32, 400


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
    _add_options_of_tokens(add)
    parser.set_defaults(run=run)


def _add_options_of_tokens(add: Any) -> None:
    add(
        "--tokenizer",
        metavar="FILE",
        help="show the texts of documents, with this tokenizer.json",
    )
    add(
        "--dtype",
        choices=token_sets.DTYPES,
        metavar="DTYPE",
        help="the files are arrays of tokens of this dtype, or ArrayRecord files of"
        " them (default: the dtype in the manifest or the header)",
    )
    add(
        "--eos",
        metavar="TOKEN",
        help="the id of the token that ends each document in an array of tokens, or its"
        " text with --tokenizer (default: the one in the manifest)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the contents of each file and folder; return 1 if any has a problem."""
    printer = _Printer(arguments.json)
    shown: set[tuple[str, ...]] = set()
    for path in _expand(arguments.files):
        try:
            tokens = None if arguments.file_format else _token_set(path, arguments)
        except CommandError as error:
            printer.show_problem(path, error)
            continue
        if tokens is not None:
            if tokens.files not in shown:  # A pattern matches both files of Megatron.
                _inspect_tokens(tokens, arguments, printer)
            shown.add(tokens.files)
        elif problem := _unused_option(path, arguments):
            printer.show_problem(path, problem)
        elif os.path.isdir(path):
            _inspect_folder(path, arguments, printer)
        elif found := _examine(path, arguments, printer):
            printer.show(found)
    return 1 if printer.has_problems else 0


def _expand(names: Sequence[str]) -> Iterator[str]:
    """Yield the paths of arguments, with those that are prefixes of files of tokens."""
    for name in names:
        if not os.path.exists(name) and token_sets.is_prefix(name):
            yield name
        else:
            yield from finding.expand([name])


def _token_set(path: str, arguments: argparse.Namespace) -> token_sets.TokenSet | None:
    return token_sets.find_token_set(path, arguments.dtype, arguments.eos)


def _unused_option(path: str, arguments: argparse.Namespace) -> UsageError | None:
    """Return an error if a file, or a folder, cannot have an option."""
    is_folder = os.path.isdir(path)
    names = ["dtype", "eos"] if is_folder else ["dtype", "eos", "tokenizer"]
    for name in names:
        if getattr(arguments, name) is not None:
            wanted = "a file, found a folder" if is_folder else "tokens, found none"
            return UsageError(f"{path}: --{name} needs {wanted}.")
    return None


def _inspect_tokens(
    tokens: token_sets.TokenSet, arguments: argparse.Namespace, printer: _Printer
) -> None:
    """Show the contents of files of tokens, or the problem."""
    options = token_contents.TokenOptions(
        arguments.dtype, arguments.eos, arguments.tokenizer
    )
    progress = new_display()
    try:
        found = token_contents.examine_tokens(
            tokens, options, arguments.head, arguments.verify, progress
        )
    except CommandError as problem:
        printer.show_problem(tokens.path, problem)
    else:
        printer.show(found)
    finally:
        progress.end()


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
        found_sets, known = token_sets.find_token_sets(folder)
        for tokens in found_sets:
            _inspect_tokens(tokens, arguments, printer)
        paths_by_format, others = group_by_format(folder, known)
        if found_sets and not paths_by_format and not others:
            return
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
    if isinstance(found, TokenContents):
        del fields["head"]
        for document in fields["documents"]:
            document["tokens"] = len(document["ids"])
        return json.dumps(fields)
    fields["head"] = [
        {"bytes": len(record), **describe_record(record)._asdict()}
        for record in found.head
    ]
    return json.dumps(fields)


def _as_text(found: contents.Contents) -> str:
    rows = [("format", found.format)]
    is_tokens = isinstance(found, TokenContents)
    if isinstance(found, TokenContents) and found.files > 1:
        rows.append(("files", f"{found.files:,}"))
    if isinstance(found, Totals):
        others = f" (and {found.other_files:,} others)" if found.other_files else ""
        rows.append(("files", f"{found.files:,}{others}"))
    rows += [
        ("size", format_bytes(found.file_bytes)),
        ("documents" if is_tokens else "records", f"{found.records:,}"),
    ]
    if isinstance(found, TokenContents):
        rows.append(("tokens", f"{found.tokens:,}"))
    if found.chunks is not None:
        rows.append(("chunks", _format_chunks(found)))
    rows += [(name, value) for name, value in found.details.items() if value]
    if found.verified:
        rows.append(("verified", _format_verdict(found)))
    width = max(len(name) for name, _ in rows)
    lines = [found.path, *(f"  {name:<{width}}  {value}" for name, value in rows)]
    if found.sizes:
        lines += ["", *_histogram(found.sizes, is_tokens)]
    if isinstance(found, TokenContents) and found.documents:
        lines += ["", f"  first {format_count(len(found.documents), 'document')}"]
        lines += [
            _document_line(number, document)
            for number, document in enumerate(found.documents)
        ]
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


def _format_verdict(found: contents.Contents) -> str:
    if isinstance(found, TokenContents):
        if found.damaged:
            return f"{format_count(len(found.damaged), 'file')} damaged, listed below"
        return "every file is the one of the manifest"
    if not found.damaged:
        return "every record is whole"
    damaged_records = sum(damage.records for damage in found.damaged)
    all_records = format_count(found.records, "record")
    return f"{damaged_records:,} of {all_records} damaged, listed below"


def _histogram(sizes: contents.Sizes, is_tokens: bool) -> list[str]:
    """Return the lines of a histogram of record sizes, or of lengths in tokens."""
    text: Callable[[float], str] = format_bytes
    title = "record sizes"
    if is_tokens:
        text, title = _format_tokens, "tokens of a document"
    sample = "" if sizes.exact else f", of {sizes.counted:,} sampled"
    median = "" if sizes.median is None else f" median {text(sizes.median)},"
    lines = [
        f"  {title}{sample}: least {text(sizes.least)},{median} mean"
        f" {text(sizes.mean)}, most {text(sizes.most)}"
    ]
    largest_number = max(number for _, number in sizes.histogram)
    rows = [
        (f"    < {text(limit)}", f"{number:,}") for limit, number in sizes.histogram
    ]
    labels = format_table(rows).splitlines()
    columns = BAR_COLUMNS
    if sys.stdout.isatty():
        free_columns = shutil.get_terminal_size().columns - 2 - max(map(len, labels))
        columns = max(free_columns, MIN_BAR_COLUMNS)
    for label, (_, number) in zip(labels, sizes.histogram, strict=True):
        lines.append(f"{label}  {draw_bar(number / largest_number, columns)}".rstrip())
    return lines


def _format_tokens(count: float) -> str:
    return f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"


def _document_line(number: int, document: Document) -> str:
    tokens = format_count(len(document.ids), "token")
    if document.text is None:
        text = ", ".join(map(str, document.ids[:MAX_IDS]))
        more = ", ..." if len(document.ids) > MAX_IDS else ""
    else:
        text = repr(document.text[:MAX_CHARACTERS])
        more = "..." if len(document.text) > MAX_CHARACTERS else ""
    return _cut(f"    {number}  {tokens}: {text}{more}")


def _record_line(number: int, record: bytes) -> str:
    description = describe_record(record)
    return _cut(f"    {number}  {description.kind:<7}  {description.text}")


def _cut(line: str) -> str:
    """Cut a line to the width of the terminal, if there is one."""
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else line[: columns - 3] + "..."
