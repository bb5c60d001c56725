"""``gristmill trace``: lists the records of steps of a run."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from gristmill import DataLoader, IterDataset, MapDataset
from gristmill._base.argument_checks import kind
from gristmill._base.object_repr import value_text
from gristmill._cli.program import load_pipeline
from gristmill._cli.terminal import STYLE
from gristmill._convert.errors import CommandError, UsageError, import_optional
from gristmill._dataset.parallel.step_tracing import StepTracer
from gristmill.errors import StateMismatch

DESCRIPTION = """\
List the records behind steps of a run, from a state that the run saved and the function
of the program that makes its dataset or DataLoader.  Outputs are computed again in this
process, without the model.

Step n is output n of the run, counted from 0: a state that was saved after 1,000
outputs is before step 1000.  If the steps are before the state, the run is followed
from its beginning, which takes longer unless the dataset can go to any index.
"""

EPILOG = """\
columns:
  step         the output
  row          the row of the batch; 0 if the output is not a batch
  source       the name of the source
  key          the number of the record (or document) in the source
  epoch        the epoch of the source
  begin, end   the tokens of the record in a packed row; otherwise all of them, with an
               empty end if their number is not known

The columns epoch, begin and end of a DataLoader are empty.

examples:
  gristmill trace state.json --steps 1000-1010 --program train:make_dataset
  gristmill trace state.json --steps 1003 --program train:make_dataset --format json
"""
COLUMNS = ("step", "row", "source", "key", "epoch", "begin", "end")
UNKNOWN_COUNT = (
    "the number of outputs before this state is not known. Pass the number of steps"
    " that the run had done when it saved the state: --saved-at N."
)


class Row(NamedTuple):
    """A row of the table; see `EPILOG`."""

    step: int
    row: int
    source: str
    key: int
    epoch: int | None
    begin: int | None
    end: int | None


def add_to(commands: Any) -> None:
    """Add the command to the parser of `gristmill`."""
    purpose = "list the records behind steps of a run"
    parser = commands.add_parser(
        "trace", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add("state", metavar="STATE", help="JSON file of a state; - for the beginning")
    add(
        "--steps",
        required=True,
        type=_parse_steps,
        metavar="A-B",
        help="the steps, A and B included; or one step",
    )
    add(
        "--program",
        required=True,
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns the dataset or the DataLoader",
    )
    add(
        "--saved-at",
        type=_parse_step,
        metavar="N",
        help="steps done before the state (default: as the state says, if it does)",
    )
    add(
        "--format",
        choices=_WRITERS,
        default="tsv",
        help="tab-separated text, JSON lines, or Parquet (default: %(default)s)",
    )
    add("--output", metavar="FILE", help="the file to write (default: the terminal)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the table."""
    if arguments.format == "parquet":
        if arguments.output is None:
            raise UsageError("--format parquet needs --output FILE.")
        import_optional("pyarrow")
    text = None if arguments.state == "-" else _read_state(arguments.state)
    pipeline = load_pipeline(arguments.program)
    if isinstance(pipeline, MapDataset):
        pipeline = pipeline.to_iter_dataset()
    if isinstance(pipeline, IterDataset):
        find_rows: Callable[..., Iterator[Row]] = _rows_of_chain
    elif isinstance(pipeline, DataLoader):
        find_rows = _rows_of_loader
    else:
        raise CommandError(
            f"--program {arguments.program}: expected a dataset or a DataLoader, got"
            f" {kind(pipeline)}."
        )
    try:
        rows = find_rows(pipeline, text, arguments.steps, arguments.saved_at)
        # Find errors in the arguments before writing.
        rows = itertools.chain(list(itertools.islice(rows, 1)), rows)
        if arguments.output is None:
            _WRITERS[arguments.format](rows, sys.stdout)
        else:
            mode = "wb" if arguments.format == "parquet" else "w"
            with open(arguments.output, mode) as file:
                _WRITERS[arguments.format](rows, file)
    except (StateMismatch, IndexError, TypeError) as error:
        raise CommandError(f"{arguments.state}: {error}") from error
    return 0


def _rows_of_chain(
    dataset: Any, text: str | None, steps: range, saved_at: int | None
) -> Iterator[Row]:
    tracer = StepTracer(dataset)
    state = None if text is None else json.loads(text)
    first = 0
    if state is not None:
        found = saved_at if saved_at is not None else tracer.outputs_before(state)
        if found is None:
            raise CommandError(UNKNOWN_COUNT)
        first = found
        if first > steps.start:
            state, first = None, 0
    outputs = tracer.trace(state, steps.start - first)
    for step in steps:
        for number, ids in enumerate(_next_output(outputs, step)):
            for source, key, epoch, begin, end in ids.tolist():
                yield Row(
                    step,
                    number,
                    tracer.names[source],
                    key,
                    epoch,
                    begin,
                    end if end >= 0 else None,
                )


def _rows_of_loader(
    loader: Any, text: str | None, steps: range, saved_at: int | None
) -> Iterator[Row]:
    if text is not None and saved_at is None:
        raise CommandError(UNKNOWN_COUNT)
    first = saved_at or 0
    iterator = iter(loader)
    name = value_text(loader._data_source)
    try:
        if text is not None and first <= steps.start:
            iterator.set_state(text.encode())
        else:
            first = 0
        outputs = itertools.islice(iterator, steps.start - first, None)
        for step in steps:
            _next_output(outputs, step)
            for number, key in enumerate(iterator.ids().tolist()):
                yield Row(step, number, name, key, None, None, None)
    finally:
        iterator.close()


def _next_output(outputs: Iterator[Any], step: int) -> Any:
    for output in outputs:
        return output
    raise CommandError(f"the run ends before step {step}.")


def _read_state(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        json.loads(text)
    except ValueError as error:
        raise CommandError(
            f"{path}: expected the JSON of iterator.get_state(), found: {error}."
        ) from error
    return text


def _write_tsv(rows: Iterator[Row], file: IO[str]) -> None:
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)


def _write_json(rows: Iterator[Row], file: IO[str]) -> None:
    for row in rows:
        file.write(json.dumps(row._asdict()) + "\n")


def _write_parquet(rows: Iterator[Row], file: IO[bytes]) -> None:
    import pyarrow
    from pyarrow import parquet

    columns: Sequence[Any] = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    types = [pyarrow.string() if name == "source" else None for name in COLUMNS]
    arrays = [
        pyarrow.array(column, each or pyarrow.int64())
        for column, each in zip(columns, types, strict=True)
    ]
    parquet.write_table(pyarrow.table(arrays, names=COLUMNS), file)


_WRITERS: dict[str, Callable[[Iterator[Row], Any], None]] = {
    "tsv": _write_tsv,
    "json": _write_json,
    "parquet": _write_parquet,
}


def _parse_steps(text: str) -> range:
    first, dash, last = text.partition("-")
    if first.isdecimal() and (last.isdecimal() if dash else not last):
        steps = range(int(first), int(last or first) + 1)
        if steps:
            return steps
    raise argparse.ArgumentTypeError(f"{text!r} is not a range such as 1000-1010")


def _parse_step(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps")
    return int(text)
