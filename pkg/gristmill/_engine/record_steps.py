"""Steps that see one `Record` at a time, flat-maps among them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gristmill import operations as legacy
from gristmill import transforms
from gristmill._engine.program import RANDOM, Program, as_number, as_step
from gristmill._engine.record_errors import RecordErrors
from gristmill._engine.record_nodes import Node, ReadNode, location_in
from gristmill._engine.stream import Position
from gristmill._hot import run as hot_run
from gristmill._hot import steps as step_kinds
from gristmill._hot.error_location import as_failure, as_missing_seed_error
from gristmill.records import Record, RecordMetadata

# A position, and the result of the steps just before it: a record or an exception.
Result = tuple[Position, Record[Any] | Exception]
# The output of one step: a record, the splits of a flat-map, or None if the step drops
# the record.
StepOutput = Record[Any] | list[Record[Any]] | None

DRAWING = (*RANDOM, legacy.RandomMapOperation)


class StepsNode(Node):
    """Maps, filters and flat-maps; each flat-map adds one integer to the position.

    While a record is being split, the position is the one before that record, and the
    number of its splits already returned.  After a seek, the record is split again.
    The later steps run again on the splits already returned only if they draw from the
    random generator, which all splits of a record share.
    """

    def __init__(self, parent: Node, steps: Sequence[Any]) -> None:
        super().__init__(parent)
        self._steps = steps
        self._functions = [_function_of(step) for step in steps]
        is_flat_map = [isinstance(step, transforms.FlatMap) for step in steps]
        self._flat_maps = sum(is_flat_map)
        later_steps = steps[is_flat_map.index(True) :] if self._flat_maps else ()
        # True if a seek runs all steps again on the splits already returned.
        self._replays = any(isinstance(step, DRAWING) for step in later_steps)
        for step in steps:
            if isinstance(step, legacy.OneByOne):
                step.warn()
        # For each flat-map: the position after its last input record, and the number of
        # splits of that record already returned.
        self._input_positions: list[Position] = []
        self._split_counts: list[int] = []
        # The position of the last flat-map: the one before the record being split, and
        # the number of its splits already returned.
        self._split_position: Position = ()
        # Splits up to this position were returned before, and are skipped.
        self._resume_position: Position = ()
        # The position after the last result that was returned.
        self._state: Position = ()
        # The next results of the current record of the parent.
        self._results: Iterator[Result] = iter(())
        self._set_position(parent.state() + (0,) * self._flat_maps)

    def __next__(self) -> Record[Any]:
        result = self._next_result()
        if isinstance(result, Exception):
            raise result
        return result

    def state(self) -> Position:
        return self._state if self._flat_maps else self._parent.state()

    def seek(self, position: Position) -> None:
        parent_position = position[: len(position) - self._flat_maps]
        self._parent.seek(parent_position)
        self._set_position(parent_position + (0,) * self._flat_maps)
        if not self._flat_maps:
            return
        self._resume_position = () if self._replays else position
        # Split records again, until one has a result after `position`.
        while self._split_position < position:
            try:
                results = self._next_results()
            except StopIteration:  # The position is at the end of the stream.
                self._set_position(position)
                break
            # A result is a tuple whose first element is its position.
            later = itertools.dropwhile(lambda result: result[0] <= position, results)
            first = next(later, None)
            if first is not None:
                self._results = itertools.chain([first], later)
                break
        self._state, self._resume_position = position, ()

    def _set_position(self, position: Position) -> None:
        """Set the position to one at which no record is being split."""
        parent_length = len(position) - self._flat_maps
        self._input_positions = [
            position[: parent_length + level] for level in range(self._flat_maps)
        ]
        self._split_counts = list(position[parent_length:])
        self._state = self._split_position = position
        self._results = iter(())

    def _next_result(self) -> Record[Any] | Exception:
        """Return the next result, and set the state to the position after it."""
        while True:
            next_result = next(self._results, None)
            if next_result is not None:
                self._state, result = next_result
                return result
            try:
                self._results = self._next_results()
            except StopIteration:
                if self._flat_maps:
                    self._state = self._end_position()
                raise

    def _end_position(self) -> Position:
        """Return the position at the end of the stream.

        It keeps the last split count, because Grain does: in Grain, each further `next`
        lets one more of the nested flat-maps reach its end.
        """
        end = (*self._input_positions[-1], self._split_position[-1])
        for level in reversed(range(1, self._flat_maps)):
            self._input_positions[level] = (
                *self._input_positions[level - 1],
                self._split_counts[level - 1],
            )
        return end

    def _next_results(self) -> Iterator[Result]:
        """Return the results of the steps for the next record.

        The iterator runs the steps as it is advanced, and updates the positions.
        """
        try:
            record = next(self._parent)
        except StopIteration:
            raise
        except Exception as error:
            return iter([self._failure_result(error, 0, self._parent.state())])
        return self._run_steps(0, record, 0, self._parent.state())

    def _run_steps(
        self, first: int, record: Record[Any], level: int, after: Position
    ) -> Iterator[Result]:
        """Yield the results for a record of the steps from number `first` on.

        Args:
            first: The number of the first step to apply.
            record: The input record.
            level: The number of flat-maps among the earlier steps.
            after: The position after the record: the parent's, and that of the first
                `level` flat-maps.
        """
        for number in range(first, len(self._steps)):
            stage_start = hot_run.begin()
            try:
                output = self._functions[number](record)
                if stage_start >= 0:
                    hot_run.end(type(self._steps[number]).__name__, stage_start)
            except Exception as error:
                step = self._steps[number]
                failure: Exception = as_failure(error, type(step).__name__)
                if isinstance(step, DRAWING) and record.metadata.rng is None:
                    failure = as_missing_seed_error(failure, type(step).__name__)
                failure.add_note(location_in(step, record.metadata, self.keys))
                yield self._failure_result(failure, level, after)
                return
            if output is None:
                return
            if isinstance(output, list):
                yield from self._run_splits(number + 1, output, level, after)
                return
            record = output
        yield after, record

    def _run_splits(
        self, first: int, splits: list[Record[Any]], level: int, after: Position
    ) -> Iterator[Result]:
        """Yield the results of `_run_steps` for each split of one record."""
        before, self._input_positions[level] = self._input_positions[level], after
        self._split_counts[level] = 0
        is_last_level = level + 1 == self._flat_maps
        if is_last_level:
            self._split_position = (*before, 0)
        for count, split in enumerate(splits, 1):
            position = (*before, count)
            self._split_counts[level] = count
            if is_last_level:
                self._split_position = position
            if position > self._resume_position[: len(position)]:
                yield from self._run_steps(first, split, level + 1, position)
            elif not is_last_level:
                # As if the next flat-map had split it.
                self._input_positions[level + 1] = position

    def _failure_result(self, error: Exception, level: int, after: Position) -> Result:
        """Return the result for a record that failed; reset the flat-maps after it."""
        for deeper in range(level, self._flat_maps):
            self._input_positions[deeper] = after + (0,) * (deeper - level)
            self._split_counts[deeper] = 0
            self._split_position = after + (0,) * (self._flat_maps - level)
        return after + (0,) * (self._flat_maps - level), error


class TolerantStepsNode(StepsNode):
    """Steps over the records of a stream that skip or substitute bad records.

    With "skip", each bad split is dropped separately.  With "substitute", all results
    of the bad record are replaced by the results of another record, which gets the
    index and the random generator of the bad one.  If `passes_turn` is true,
    iteration raises StopIteration temporarily after many bad records without an
    element.
    """

    def __init__(
        self,
        reader: ReadNode,
        steps: Sequence[Any],
        program: Program,
        errors: RecordErrors,
        passes_turn: bool,
    ) -> None:
        super().__init__(reader, steps)
        self._reader = reader
        self._program = program
        self._errors = errors
        self._passes_turn = passes_turn
        self._substitutes = program.on_error == "substitute"
        # A split already returned may be the reason why its record was replaced.
        self._replays = self._replays or self._substitutes

    def __next__(self) -> Record[Any]:
        while not (self._passes_turn and self._errors.should_pass_turn):
            result = self._next_result()
            if not isinstance(result, Exception):
                self._errors.is_first_element = False
                return result
            self._errors.replace_record(result, self._reader.key)
        raise StopIteration

    def _end_position(self) -> Position:
        end = super()._end_position()
        if not self._substitutes:
            return end
        # The position is after the bad records without results: do not read them again.
        [position] = self._reader.state()
        if position < self._reader.end:
            return position, *[0] * self._flat_maps
        return position, *end[1:]

    def _next_results(self) -> Iterator[Result]:
        if not self._substitutes:
            return super()._next_results()
        if self._passes_turn and self._errors.should_pass_turn:
            raise StopIteration
        input_positions = self._input_positions.copy()
        split_position = self._split_position
        [position] = self._reader.state()
        # All results of the record, since a later one may fail and replace them all.
        results = list(super()._next_results())
        error = _failure_in(results)
        if error is None:
            return iter(results)

        def recompute(key: Any) -> list[Result]:
            """Return the results of the steps for another record, at this position."""
            self._input_positions = input_positions.copy()
            self._split_position = split_position
            self._reader.keys = [as_number(key)]
            metadata = self._reader.stream_keys.metadata(position)
            record = Record(metadata, self._program.source[key])
            substitute_results = list(self._run_steps(0, record, 0, (position + 1,)))
            if failure := _failure_in(substitute_results):
                raise failure
            return substitute_results

        candidates = self._reader.stream_keys.candidates(position)
        return iter(
            self._errors.replace_record(error, self._reader.key, candidates, recompute)
        )


def _failure_in(results: Sequence[Result]) -> Exception | None:
    failures = (result for _, result in results if isinstance(result, Exception))
    return next(failures, None)


def _function_of(step: Any) -> Callable[[Record[Any]], StepOutput]:
    """Return the function that applies a step to a record."""
    if isinstance(step, legacy.OneByOne):
        return step.output_of
    if isinstance(step, transforms.FlatMap):
        return functools.partial(_splits, step)
    opcode, call, _ = as_step(step)
    if opcode == step_kinds.FILTER:
        return lambda one: one if call(one.data) else None
    if opcode == step_kinds.MAP_WITH_INDEX:
        return lambda one: Record(one.metadata, call(one.metadata.index, one.data))
    if opcode == step_kinds.RANDOM_MAP:
        # Without a seed there is no generator.  Like Grain, pass None.
        return lambda one: Record(one.metadata, call(one.data, one.metadata.rng))
    return lambda one: Record(one.metadata, call(one.data))


def _splits(step: transforms.FlatMap, record: Record[Any]) -> list[Record[Any]]:
    # Reserve `max_fan_out` indices for the splits of each record.
    offset, rng = record.metadata.index * step.max_fan_out, record.metadata.rng
    return [
        Record(RecordMetadata(index=offset + number, rng=rng), split)
        for number, split in enumerate(step.flat_map(record.data))
    ]
