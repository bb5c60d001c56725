"""The command line: ``gristmill COMMAND ...`` or ``python -m gristmill COMMAND ...``.

Commands end with 0 if all is well, 1 if they found a problem, 2 if they were called
incorrectly, and 130 if they were interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import gristmill
from gristmill._cli.terminal import STYLE
from gristmill._convert.errors import CommandError, UsageError

OK, PROBLEM, USAGE, INTERRUPTED = 0, 1, 2, 130

EPILOG = """\
examples:
  gristmill convert 'data/*.tfrecord' out/train --shards 16
  gristmill convert photos/ photos.array_record --with-names
  gristmill tokenize data.jsonl out/train --tokenizer tokenizer.json
  gristmill inspect out/train-* --verify
  gristmill bench photos.array_record
  gristmill top 4242
  gristmill trace state.json --steps 1000-1010 --program train:make_dataset

Run "gristmill COMMAND --help" for the options of a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return the status to exit with.

    Args:
        argv: The arguments. None takes those of the process.
    """
    try:
        parser = _build_parser()
        arguments = parser.parse_args(argv)
        if arguments.command is None:
            parser.print_help(sys.stderr)
            return USAGE
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except CommandError as problem:
        print(f"gristmill: {problem}", file=sys.stderr)
        return USAGE if isinstance(problem, UsageError) else PROBLEM
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe.
        _discard_output()
        return OK
    except OSError as error:  # For example, the output goes to a full disk.
        _discard_output()
        print(f"gristmill: {error}", file=sys.stderr)
        return PROBLEM
    except KeyboardInterrupt as end:
        print(f"gristmill: {str(end) or 'interrupted.'}", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:  # argparse ends the process after --help and misuse.
        return int(end.code or OK)
    return status


def _discard_output() -> None:
    """Discard the buffered output: writing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _build_parser() -> argparse.ArgumentParser:
    # Imported here, so that `main` handles Ctrl-C during these imports.
    from gristmill._cli import bench, convert, inspect, tokenize, top, trace

    parser = argparse.ArgumentParser(
        prog="gristmill",
        description="Convert, tokenize, inspect and measure files; watch loaders.",
        epilog=EPILOG,
        **STYLE,
    )
    parser.add_argument(
        "--version", action="version", version=f"gristmill {gristmill.__version__}"
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command"
    )
    for command in (convert, tokenize, inspect, bench, top, trace):
        command.add_to(commands)
    return parser
