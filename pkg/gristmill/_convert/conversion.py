"""Converts inputs to a set of ArrayRecord files, going on where it was interrupted.

The records of all inputs, in order, are cut into one contiguous range for each shard,
so the shards, in the order of their names, hold the records in the order of the
inputs, whatever the number of processes.  A shard is written to a hidden file, read
back, and noted in the journal; when all are finished, they get their names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

from gristmill._convert import worker_pool
from gristmill._convert.inputs import Input, TFRecordInput
from gristmill._convert.journal import Journal, Shard
from gristmill._convert.output import Output, part_of
from gristmill._convert.problem import Problem, of_os_error
from gristmill._convert.shards import Written, write_file

__all__ = ["Progress", "Result", "convert"]

# Tasks given to each process, so that all end at about one time. It is one where a
# task first reads what comes before its records.
TASKS_PER_PROCESS = 4


class Progress(Protocol):
    """Is told how far a conversion is."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Say what is counted from now on, how many there are, and were before."""

    def advance(self, count: int) -> None:
        """Say that so many more are done."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a conversion made.

    Attributes:
        records: In all files together.
        record_bytes: Bytes of the records.
        file_bytes: Bytes of the files.
        written: How many files this run wrote; the others were there.
    """

    records: int
    record_bytes: int
    file_bytes: int
    written: int


@dataclasses.dataclass(frozen=True)
class _Run:
    """Shards that follow one another, for one process to write."""

    inputs: Sequence[Input]
    counts: Sequence[int]
    # The first record of each shard, and the one after its last.
    ranges: Sequence[tuple[int, int]]
    paths: Sequence[str]
    options: str


def convert(
    inputs: Sequence[Input],
    output: Output,
    writer_options: str,
    *,
    ranges: Literal["even", "inputs"],
    processes: int,
    restart: bool,
    progress: Progress,
) -> Result:
    """Convert inputs to an output.

    Args:
        inputs: What is read, in order.
        output: What is written.
        writer_options: Options of the array-record package's writer.
        ranges: "even" gives each shard the same number of records, one more or
            less; "inputs" gives each shard the records of one input.
        processes: How many shards are written at once.
        restart: Whether to remove what an earlier run made, and begin anew.
        progress: Is told how far it is.

    Raises:
        Problem: Something is not as it must be. What is finished remains, and the
            same call goes on from there.
    """
    _make_folder(output.final(0))
    header = {
        "inputs": [_described(each) for each in inputs],
        "outputs": [os.path.basename(output.final(s)) for s in range(output.count)],
        "writer_options": writer_options,
        "ranges": ranges,
    }
    with contextlib.closing(Journal(output.journal)) as journal:
        if restart:
            _remove_earlier(journal, output, inputs)
        _begin(journal, header, output, inputs)
        pending = [
            s for s in range(output.count) if not _is_finished(journal, output, s)
        ]
        if pending:
            with _indexed(inputs) as indexed:
                counts = _count(journal, indexed, processes, progress)
                runs = _plan(
                    indexed, counts, pending, output, writer_options, ranges, processes
                )
                _write(journal, runs, processes, progress, sum(counts))
        _check_unchanged(inputs, header)
        _rename(output)
        shards = journal.shards.values()
        return Result(
            sum(shard.records for shard in shards),
            sum(shard.record_bytes for shard in shards),
            sum(shard.file_bytes for shard in shards),
            len(pending),
        )


def _described(each: Input) -> dict[str, Any]:
    fields = dataclasses.fields(each)  # type: ignore[arg-type]
    options = {
        field.name: getattr(each, field.name) for field in fields if field.compare
    }
    return {"kind": type(each).__name__, **options, **each.identity()}


@contextlib.contextmanager
def _indexed(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """Let all processes use the index of a TFRecord file that one of them made."""
    with tempfile.TemporaryDirectory(prefix="gristmill-convert-") as folder:
        yield [
            dataclasses.replace(each, index_dir=folder)
            if isinstance(each, TFRecordInput)
            else each
            for each in inputs
        ]


def _make_folder(path: str) -> None:
    folder = os.path.dirname(path) or "."
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise of_os_error(error, folder) from error


def _remove_earlier(journal: Journal, output: Output, inputs: Sequence[Input]) -> None:
    """Remove the files of an earlier conversion, and those in the way."""
    finals = [
        *_outputs_before(journal, output),
        *map(output.final, range(output.count)),
    ]
    _remove([*finals, *map(part_of, finals)], inputs)
    journal.clear()


def _outputs_before(journal: Journal, output: Output) -> list[str]:
    """Return the outputs that a journal names, whoever wrote it, if they are ours."""
    folder = os.path.dirname(output.stem)
    names = (journal.header or {}).get("outputs", [])
    return [os.path.join(folder, name) for name in names if output.may_be(name)]


def _remove(paths: Sequence[str], inputs: Sequence[Input]) -> None:
    read = {os.path.realpath(each.path) for each in inputs}
    for path in paths:
        if os.path.realpath(path) in read:
            raise Problem(
                f"{path} is an input, and would be removed with what an earlier"
                " conversion to this OUT made. Choose another OUT."
            )
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise of_os_error(error, path) from error


def _begin(
    journal: Journal, header: dict[str, Any], output: Output, inputs: Sequence[Input]
) -> None:
    """Begin a journal, or check that it is of this conversion."""
    if journal.header == header:
        return
    if journal.shards:
        difference = _difference(journal.header or {}, header)
        raise Problem(
            f"{journal.path}: {difference}. Go on with what was converted before, or"
            " pass --restart to remove what it made and begin anew."
        )
    _remove([*map(part_of, _outputs_before(journal, output))], inputs)
    for shard in range(output.count):
        if os.path.lexists(output.final(shard)):
            journal.remove()
            raise Problem(
                f"{output.final(shard)} exists already, and this conversion did not"
                " make it. Choose another OUT, or pass --restart to replace it."
            )
    journal.begin(header)


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Say in what two conversions differ."""
    for name in ("writer_options", "ranges", "outputs"):
        if before.get(name) != now[name]:
            return (
                f"this output was begun with other options: {name} was"
                f" {_brief(before.get(name))}, now it is {_brief(now[name])}"
            )
    old, new = before.get("inputs", []), now["inputs"]
    if len(old) != len(new):
        return f"this output was begun with {len(old)} inputs, now there are {len(new)}"
    for one, other in zip(old, new, strict=True):
        for name in other:
            if one.get(name) != other[name]:
                return (
                    f"input {other['path']} is not as it was: {name} was"
                    f" {one.get(name)}, now it is {other[name]}"
                )
    return "this output was begun in another way"


def _brief(value: Any) -> str:
    if isinstance(value, list) and len(value) > 1:
        return f"{value[0]} and {len(value) - 1} more"
    return str(value[0]) if isinstance(value, list) else repr(value)


def _is_finished(journal: Journal, output: Output, number: int) -> bool:
    """Return whether a shard is in the journal, and its file is there."""
    shard = journal.shards.get(number)
    if shard is None:
        return False
    for path in (output.part(number), output.final(number)):
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(path) == shard.file_bytes
    return False


def _count(
    journal: Journal, inputs: Sequence[Input], processes: int, progress: Progress
) -> list[int]:
    if journal.counts is None:
        progress.begin("inputs counted", len(inputs))
        counts = [0] * len(inputs)
        with contextlib.closing(
            worker_pool.run(_count_one, inputs, processes)
        ) as reports:
            for number, count in reports:
                counts[number] = count
                progress.advance(1)
        journal.set_counts(counts)
        return counts
    return journal.counts


def _count_one(each: Input) -> Iterator[int]:
    yield each.count()


def _plan(
    inputs: Sequence[Input],
    counts: Sequence[int],
    pending: Sequence[int],
    output: Output,
    options: str,
    ranges: Literal["even", "inputs"],
    processes: int,
) -> list[tuple[list[int], _Run]]:
    """Return runs of shards to write, each with the numbers of its shards."""
    total = sum(counts)
    if ranges == "inputs":
        limits = list(itertools.accumulate(counts, initial=0))
    else:
        limits = [shard * total // output.count for shard in range(output.count + 1)]
    all_ranges = list(itertools.pairwise(limits))
    if ranges == "inputs" or all(each.seeks() for each in inputs):
        processes *= TASKS_PER_PROCESS
    size = max(1, len(pending) // processes)
    runs = []
    for begin in range(0, len(pending), size):
        numbers = list(pending[begin : begin + size])
        chosen = [all_ranges[shard] for shard in numbers]
        parts = [output.part(shard) for shard in numbers]
        runs.append((numbers, _Run(inputs, counts, chosen, parts, options)))
    return runs


def _write(
    journal: Journal,
    runs: Sequence[tuple[list[int], _Run]],
    processes: int,
    progress: Progress,
    total: int,
) -> None:
    expected = sum(end - begin for _, run in runs for begin, end in run.ranges)
    progress.begin("records", total, total - expected)
    # The shards of each run that are not written yet.
    left = [list(numbers) for numbers, _ in runs]
    tasks = [run for _, run in runs]
    with contextlib.closing(worker_pool.run(_write_run, tasks, processes)) as reports:
        for number, report in reports:
            if isinstance(report, int):
                progress.advance(report)
            else:
                shard = left[number].pop(0)
                journal.add(Shard(shard, **dataclasses.asdict(report)))


def _write_run(run: _Run) -> Iterator[int | Written]:
    """Write the shards of a run; ranges that touch are read in one go."""
    records: Iterator[bytes] = iter(())
    position = -1
    for (begin, end), path in zip(run.ranges, run.paths, strict=True):
        if begin != position:
            records = _records(run.inputs, run.counts, begin)
        yield from write_file(itertools.islice(records, end - begin), path, run.options)
        position = end


def _records(
    inputs: Sequence[Input], counts: Sequence[int], first: int
) -> Iterator[bytes]:
    """Yield all records from number `first` on, of one input after the other.

    Raises:
        Problem: An input has more or fewer records than were counted.
    """
    for each, count in zip(inputs, counts, strict=True):
        if first >= count:
            first -= count
            continue
        found = first
        for record in each.records(first):
            found += 1
            if found > count:
                break
            yield record
        if found != count:
            raise Problem(
                f"{each.path}: expected {count} records, as were counted, but found"
                f" {'more' if found > count else found}. Convert when it no longer"
                " changes, with --restart."
            )
        first = 0


def _check_unchanged(inputs: Iterable[Input], header: dict[str, Any]) -> None:
    for each, before in zip(inputs, header["inputs"], strict=True):
        if _described(each) != before:
            raise Problem(
                f"{each.path} was changed while it was converted. Convert when it no"
                " longer changes, with --restart."
            )


def _rename(output: Output) -> None:
    """Give finished files their names."""
    try:
        for shard in range(output.count):
            with contextlib.suppress(FileNotFoundError):  # It has its name.
                os.replace(output.part(shard), output.final(shard))
        folder = os.open(os.path.dirname(output.stem) or ".", os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise of_os_error(error, output.stem) from error
