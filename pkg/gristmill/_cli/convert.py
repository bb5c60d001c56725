"""``gristmill convert``: makes ArrayRecord files from other files of records."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gristmill._base.progress_bar import Progress, new_display
from gristmill._cli.terminal import STYLE, format_bytes, format_count, integer_parser
from gristmill._convert import finding
from gristmill._convert.conversion import convert
from gristmill._convert.errors import CommandError
from gristmill._convert.inputs import Input
from gristmill._convert.paths import Output
from gristmill._convert.shards import WrittenFile, writer_options

DESCRIPTION = """\
Convert TFRecord files (plain, gzip or zlib), Parquet files, JSON lines (plain or
gzip), folders of files, or ArrayRecord files to ArrayRecord.

The records of all inputs, in the given order, are split into contiguous ranges of equal
length, one for each shard.  The result is the same for any number of processes.  Each
shard is written to a hidden file next to OUT, read back, and compared by count and
SHA-256.  When all are finished, they are renamed.  To resume an interrupted conversion,
run the same command again.  Finished shards are recorded in .OUT.convert.jsonl, which
you may delete when you no longer need it.
"""

EPILOG = """\
records:
  TFRecord, ArrayRecord   the same bytes
  JSON lines              the line; with --encode example, a tf.train.Example
  Parquet                 a tf.train.Example of the row; with --encode json, a line
  folder of files         the content of the file; with --with-names, a
                          tf.train.Example of name, label (by folder) and bytes

examples:
  gristmill convert 'data/*.tfrecord.gz' out/train --shards 16 --processes 4
  gristmill convert part-*.parquet table.array_record --compression zstd:9
  gristmill convert old.array_record new.array_record --group-size 1
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser of `gristmill`."""
    purpose = "convert TFRecord, Parquet, JSON lines or a folder to ArrayRecord"
    parser = commands.add_parser(
        "convert", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add("inputs", nargs="+", metavar="IN", help="a file, a folder, or a 'pattern*'")
    add("output", metavar="OUT", help="the file, or the start of the shards' names")
    add(
        "--group-size",
        type=integer_parser(1),
        default=1,
        metavar="N",
        help="records that are compressed and read together (default: 1, which is best"
        " for random access)",
    )
    add(
        "--compression",
        type=_parse_compression,
        default="zstd:3",
        metavar="CODEC",
        help="none, zstd[:LEVEL], brotli[:LEVEL] or snappy (default: zstd:3)",
    )
    _add_options_of_inputs(add)
    add_options_of_runs(add)
    parser.set_defaults(run=run, parser=parser)


def _add_options_of_inputs(add: Callable[..., Any]) -> None:
    """Add the options that control how inputs are read."""
    add_format_option(add)
    add(
        "--encode",
        choices=("example", "json"),
        help="encoding of rows and lines (default: example for Parquet; JSON lines are"
        " not changed)",
    )
    add(
        "--with-names",
        action="store_true",
        help="store the names and labels of the files of a folder",
    )
    add_link_option(add)


def add_options_of_runs(add: Callable[..., Any]) -> None:
    """Add the options that control how the output is written."""
    add(
        "--shards",
        type=_parse_shards,
        metavar="N|inputs",
        help="number of files to write, OUT-00000-of-0000N and so on, or 'inputs' for"
        " one per input (default: one file, named OUT)",
    )
    add(
        "--processes",
        type=integer_parser(1),
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="parts of the output to write at once (default: the number of cores,"
        " %(default)s)",
    )
    add(
        "--restart",
        action="store_true",
        help="remove the files of an earlier conversion, and start again",
    )
    add("--quiet", action="store_true", help="print only errors")


def add_format_option(add: Callable[..., Any]) -> None:
    """Add the option for the format of the inputs."""
    add(
        "--from",
        dest="file_format",
        choices=finding.FORMATS,
        metavar="FORMAT",
        help="format of the inputs: " + ", ".join(finding.FORMATS) + " (default:"
        " detected by name or content)",
    )


def add_link_option(add: Callable[..., Any]) -> None:
    """Add the option for links in folders."""
    add(
        "--follow-links",
        action="store_true",
        help="follow links in a folder that lead out of it (default: such a link is an"
        " error)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Convert the inputs and print a summary."""
    paths = expand(arguments)
    inputs = finding.inputs_of(
        paths,
        arguments.file_format,
        arguments.encode,
        arguments.with_names,
        arguments.follow_links,
    )
    by_input = arguments.shards == "inputs"
    output = Output(arguments.output, len(inputs) if by_input else arguments.shards)
    check_not_inputs(inputs, output)
    progress = Progress() if arguments.quiet else new_display()
    start = time.monotonic()
    with ending(progress):
        files, written_count = convert(
            inputs,
            output,
            writer_options(arguments.group_size, arguments.compression),
            ranges="inputs" if by_input else "even",
            processes=arguments.processes,
            restart=arguments.restart,
            progress=progress,
        )
    if not arguments.quiet:
        seconds = time.monotonic() - start
        print(_summary(files, written_count, output, len(inputs), seconds))
    return 0


def expand(arguments: argparse.Namespace) -> list[str]:
    """Return the paths of the inputs, after checking the output.

    Raises:
        CommandError: An input does not exist, or the output would be in one.
    """
    if arguments.output.endswith("/") or os.path.isdir(arguments.output):
        arguments.parser.error(
            f"OUT must be a file, got the folder {arguments.output}. Pass a file in"
            f" it, such as {os.path.join(arguments.output, 'train')}"
        )
    finding.check_local(arguments.output)
    paths = finding.expand(arguments.inputs)
    # Check this before examining the inputs, which may include an earlier output.
    _check_outside(paths, arguments.output)
    return paths


@contextlib.contextmanager
def ending(progress: Progress) -> Iterator[None]:
    """Remove the progress display at the end, and say how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "interrupted. Run the same command again to resume."
        ) from None
    finally:
        progress.end()


def _check_outside(paths: Sequence[str], output: str) -> None:
    """Raise CommandError if OUT is in an input folder, which would be read again."""
    folder = os.path.dirname(os.path.realpath(output))
    for path in paths:
        inside = os.path.join(os.path.realpath(path), "")
        if os.path.isdir(path) and os.path.join(folder, "").startswith(inside):
            raise CommandError(
                f"OUT would be in {path}, whose files are the input. Choose an OUT"
                " outside of it."
            )


def check_not_inputs(inputs: Sequence[Input], output: Output) -> None:
    """Raise CommandError if an output file is also an input."""
    outputs = {*map(os.path.realpath, output.finals())}
    for source in inputs:
        if os.path.realpath(source.path) in outputs:
            raise CommandError(
                f"{source.path} is both an input and an output. Choose another OUT."
            )


def name_of(output: Output) -> str:
    """Return the name of the first shard, and of the last if there are several."""
    name = output.final(0)
    if output.count > 1:
        name += f" ... {os.path.basename(output.final(output.count - 1))}"
    return name


def _summary(
    files: Sequence[WrittenFile],
    written_count: int,
    output: Output,
    input_count: int,
    seconds: float,
) -> str:
    """Describe a finished conversion; this run wrote `written_count` of its files."""
    name = name_of(output)
    records = format_count(sum(file.records for file in files), "record")
    record_bytes = format_bytes(sum(file.record_bytes for file in files))
    file_bytes = format_bytes(sum(file.file_bytes for file in files))
    outcome = f"written and verified in {seconds:.1f} s"
    if not written_count:
        outcome = "already finished"
    elif written_count < output.count:
        earlier_files = format_count(output.count - written_count, "file")
        outcome = f"{earlier_files} already finished, the others {outcome}"
    inputs = format_count(input_count, "input")
    return f"{name}: {records} of {inputs} ({record_bytes} in {file_bytes}), {outcome}."


def _parse_shards(text: str) -> int | str:
    if text == "inputs":
        return text
    number = integer_parser(1)(text)
    if number > 99_999:
        raise argparse.ArgumentTypeError(
            f"the number of shards must be at most 99999, got {number}"
        )
    return number


def _parse_compression(text: str) -> str:
    try:
        writer_options(1, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
