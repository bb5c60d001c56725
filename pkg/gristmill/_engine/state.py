"""Reads and writes checkpoints as Grain's own JSON.

Grain has two formats, and both are kept byte for byte.  A DataLoader without flat-maps
has "version 2".  One with a flat-map has the nested state of Grain's Dataset iterators.
Additional values are stored under a last key, "gristmill", which Grain ignores.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
from typing import Any

from gristmill._engine.program import Program
from gristmill._engine.stream import Position
from gristmill.errors import StateMismatch

FORMAT = 1
# The format of states of epochs after 0, which releases without epochs must refuse.
EPOCH_FORMAT = 2
# Exceptions that reading an invalid state may raise.
INVALID_STATE_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


@dataclasses.dataclass
class RunPosition:
    """The position of an iterator, which takes its outputs from streams in turn.

    Attributes:
        worker_count: The worker count in the checkpoint; fixed when the run began.
        next_stream: The number of the stream of the next output.
        positions: The position of each stream after its last delivered output.
        ended: For each stream, whether it has ended.
        errors: The number of bad records skipped or substituted so far.
        epoch: The loader's epoch, see its `set_epoch`.
    """

    worker_count: int
    next_stream: int
    positions: list[Position]
    ended: list[bool]
    errors: int = 0
    epoch: int = 0

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len(self.positions)

    def pass_turn(self) -> None:
        """Advance `next_stream` by one."""
        self.next_stream = (self.next_stream + 1) % len(self.positions)


@dataclasses.dataclass(frozen=True)
class SavedPipeline:
    """The description of a pipeline that its checkpoints contain.

    Attributes:
        program: The program; its number of streams does not matter.
        sampler: ``repr`` of the sampler.
        data_source: ``repr`` of the source, or its type for data in memory.
        differs_from_grain: Whether the shuffle differs from Grain's, which loses a
            record here.
    """

    program: Program
    sampler: str
    data_source: str
    differs_from_grain: bool

    def with_replay(
        self, position: Position, replay: list[int] | None = None
    ) -> Position:
        """Return a stream's position with the start of its replay, if it is opaque.

        The start of a replay is a position, and the number of outputs since then.  By
        default it is this position and 0.
        """
        if not self.program.opaque:
            return position
        return position + (tuple(replay) if replay else (*position, 0))

    def origin(self, worker_count: int, streams: int, epoch: int = 0) -> RunPosition:
        """Return the position before the first output."""
        stream_start = self.with_replay((0,) * (1 + self.program.flat_maps))
        positions, ended = [stream_start] * streams, [False] * streams
        return RunPosition(worker_count, 0, positions, ended, epoch=epoch)


def encode(pipeline: SavedPipeline, position: RunPosition) -> bytes:
    """Return a position as the bytes of a checkpoint."""
    encode_state = _nested if pipeline.program.flat_maps else _version_2
    state = encode_state(pipeline, position)
    extra = _extra_values(pipeline, position)
    if extra:
        format_number = EPOCH_FORMAT if position.epoch else FORMAT
        state["gristmill"] = {"format": format_number, **extra}
    return json.dumps(state, indent=4).encode()


def decode(pipeline: SavedPipeline, text: bytes, validate: bool = True) -> RunPosition:
    """Return the position that a checkpoint describes.

    If `validate` is False, the checkpoint may name another sampler or data source.

    Raises:
        StateMismatch: It belongs to another pipeline, or is not a checkpoint.
        IndexError: It points past the end of the data.
    """
    state = _parse(text)
    extra = state.get("gristmill", {})
    if not isinstance(extra, dict):
        raise StateMismatch(
            f"Checkpoint has {extra!r:.100} under 'gristmill', expected an object. The"
            " file may belong to something else."
        )
    if extra.get("format", FORMAT) not in (FORMAT, EPOCH_FORMAT):
        raise StateMismatch(
            f"Checkpoint has gristmill format {extra['format']}, expected at most"
            f" {EPOCH_FORMAT}. Use the version that wrote it, or a newer one."
        )
    try:
        if validate and not pipeline.program.flat_maps:
            _check_names(pipeline, state)
        decode_state = _from_nested if pipeline.program.flat_maps else _from_version_2
        position = decode_state(pipeline, state, extra)
        replay = extra.get("replay")
        position.positions = [
            pipeline.with_replay(stream_position, replay and replay[stream])
            for stream, stream_position in enumerate(position.positions)
        ]
        if "waiting" in extra:
            if pipeline.program.buckets is None:
                raise ValueError("'waiting' is only for pipelines with a BucketBatch")
            pairs = zip(position.positions, extra["waiting"], strict=True)
            position.positions = [
                (*stream_position, *waiting) for stream_position, waiting in pairs
            ]
        _check_form(pipeline, position)
    except StateMismatch:
        raise
    except INVALID_STATE_ERRORS as error:
        raise StateMismatch(
            "Checkpoint does not describe a position of this pipeline: "
            f"{type(error).__name__} {error}. It was probably saved by a pipeline "
            "with other operations; restore it with those."
        ) from error
    _check_order_and_length(pipeline, position, extra)
    position.errors = _read_count(extra, "errors")
    position.epoch = _read_count(extra, "epoch")
    return position


def _read_count(extra: dict[str, Any], name: str) -> int:
    """Return a number of a checkpoint; 0 if it is absent."""
    count = extra.get(name, 0)
    if type(count) is not int or count < 0:
        raise StateMismatch(
            f"{name!r} of the checkpoint must be an int >= 0, got {count!r}. The file"
            " may belong to something else."
        )
    return count


def check_streams(position: RunPosition, streams: int | None) -> None:
    """Check that a position has a number of streams, unless it is None.

    Raises:
        StateMismatch: The numbers differ.
    """
    if streams is not None and streams != position.streams:
        raise StateMismatch(
            f"streams must be {position.streams}, as in the checkpoint, got {streams}. "
            "The number of streams defines the order, so it cannot change within a "
            f"run. Leave streams out, or pass {position.streams}."
        )


def _version_2(pipeline: SavedPipeline, position: RunPosition) -> dict[str, Any]:
    shards = pipeline.program.shard.shard_count
    stride = position.streams * shards
    offset = pipeline.program.shard.shard_index - stride
    # Grain stores the index of each stream's last record: one stride before the next.
    return {
        "version": 2,
        "last_seen_indices": {
            str(i): offset + i * shards + stream_position[0] * stride
            for i, stream_position in enumerate(position.positions)
        },
        "last_worker_index": position.next_stream - 1,
        "worker_count": position.worker_count,
        "sampler": pipeline.sampler,
        "data_source": pipeline.data_source,
    }


def _from_version_2(
    pipeline: SavedPipeline, state: dict[str, Any], extra: dict[str, Any]
) -> RunPosition:
    worker_count = int(state["worker_count"])
    streams = int(extra.get("streams", max(worker_count, 1)))
    if worker_count < 0 or streams < 1:
        raise ValueError(
            f"worker_count must be >= 0 and streams >= 1, got {worker_count}, {streams}"
        )
    shards = pipeline.program.shard.shard_count
    stride = streams * shards
    offset = stride - pipeline.program.shard.shard_index
    seen = state["last_seen_indices"]
    positions: list[Position] = [
        ((int(seen[str(i)]) + offset - i * shards) // stride,) for i in range(streams)
    ]
    turn = (int(state["last_worker_index"]) + 1) % streams
    return RunPosition(worker_count, turn, positions, [False] * streams)


def _nested(pipeline: SavedPipeline, position: RunPosition) -> dict[str, Any]:
    states = [
        _nest(stream_position, pipeline.program.flat_maps)
        for stream_position in position.positions
    ]
    if position.worker_count == 0 and position.streams == 1:
        return states[0]
    return {
        "next_index_in_cycle": position.next_stream,
        "next_index_in_datasets": position.streams,
        "iterators_in_use_indices": list(range(position.streams)),
        "iterators_in_use_states": states,
        "exhausted": [int(ended) for ended in position.ended],
        "future_states": {},
    }


def _nest(stream_position: Position, flat_maps: int) -> dict[str, Any]:
    """Return Grain's state of a stream: the last flat-map's, which has its parent's."""
    state: dict[str, Any] = {"next_index": stream_position[0]}
    for split_count in stream_position[1 : 1 + flat_maps]:
        state = {"parent": state, "next_index_in_buffer": split_count}
    return state


def _from_nested(
    pipeline: SavedPipeline, state: dict[str, Any], extra: dict[str, Any]
) -> RunPosition:
    states = state.get("iterators_in_use_states", [state])
    positions = [_unnest(nested, pipeline.program.flat_maps) for nested in states]
    if "iterators_in_use_states" not in state:
        return RunPosition(0, 0, positions, [False])
    return RunPosition(
        int(extra.get("worker_count", len(states))),
        int(state["next_index_in_cycle"]),
        positions,
        [bool(e) for e in state["exhausted"]],
    )


def _unnest(state: dict[str, Any], flat_maps: int) -> Position:
    split_counts: list[int] = []
    for _ in range(flat_maps):
        split_counts.append(int(state["next_index_in_buffer"]))
        state = state["parent"]
    return (int(state["next_index"]), *reversed(split_counts))


def _extra_values(pipeline: SavedPipeline, position: RunPosition) -> dict[str, Any]:
    """Return the values for which Grain's formats have no room, if any."""
    extra: dict[str, Any] = {}
    if position.streams != max(position.worker_count, 1):
        extra["streams"] = position.streams
        if pipeline.program.flat_maps:
            extra["worker_count"] = position.worker_count
    if pipeline.program.opaque and any(
        stream_position[-1] for stream_position in position.positions
    ):
        replay_at = 1 + pipeline.program.flat_maps
        extra["replay"] = [
            list(stream_position[replay_at:]) for stream_position in position.positions
        ]
    if pipeline.program.buckets is not None and any(
        len(stream_position) > 1 for stream_position in position.positions
    ):
        extra["waiting"] = [
            list(stream_position[1:]) for stream_position in position.positions
        ]
    if pipeline.differs_from_grain:
        extra["permutation"] = "complete"
    if position.errors:
        extra["errors"] = position.errors
    if position.epoch:
        extra["epoch"] = position.epoch
    return extra


def _check_form(pipeline: SavedPipeline, position: RunPosition) -> None:
    """Check that a position fits the pipeline's operations.

    Raises:
        TypeError: A value is not an integer.
        ValueError: There are too many numbers or too few, or one is out of range.
    """
    streams, length = position.streams, len(pipeline.origin(0, 1).positions[0])
    if not 0 <= position.next_stream < streams or len(position.ended) != streams:
        raise ValueError(
            f"the next stream must be below {streams}, with {streams} flags of ended"
            f" streams, got {position.next_stream} and {position.ended}"
        )
    if pipeline.program.buckets is not None:
        for stream_position in position.positions:
            _check_waiting(stream_position, pipeline.program.position_capacity)
        return
    for stream_position in position.positions:
        # `_check_order_and_length` checks the first number.
        numbers = [operator.index(number) for number in stream_position][1:]
        if len(stream_position) != length or not all(0 <= n < 2**63 for n in numbers):
            raise ValueError(
                f"a position must have {length} integers in [0, 2**63), got"
                f" {list(stream_position)}"
            )


def _check_waiting(stream_position: Position, capacity: int) -> None:
    """Check that all waiting elements of a position are of records before it.

    Raises:
        ValueError: An element is of a later record, or the numbers do not ascend.
    """
    consumed, *waiting = map(operator.index, stream_position)
    is_ascending = all(a < b for a, b in itertools.pairwise([-1, *waiting, consumed]))
    if not is_ascending or len(stream_position) > capacity:
        raise ValueError(
            f"waiting records must ascend and be below {consumed}, got {waiting}"
        )


def _check_order_and_length(
    pipeline: SavedPipeline, position: RunPosition, extra: dict[str, Any]
) -> None:
    """Check that a position fits the shuffle and the length of the data."""
    if pipeline.differs_from_grain and extra.get("permutation") != "complete":
        raise StateMismatch(
            "Checkpoint was saved by Grain for a shuffle over 4**k + 1 records, "
            "where Grain repeats its first record and loses the last one. "
            "Gristmill's order is complete and therefore different, so it cannot "
            "continue from there. Start this epoch again, or finish it with Grain."
        )
    for i, stream_position in enumerate(position.positions):
        length = max(0, -(-(pipeline.program.length - i) // position.streams))
        if not 0 <= stream_position[0] <= length:
            raise IndexError(
                f"Checkpoint `next_index` {stream_position[0]} is out of range for"
                f" dataset of length {length}."
            )


def _check_names(pipeline: SavedPipeline, state: dict[str, Any]) -> None:
    names = (
        ("Sampler", "dataloader sampler", "sampler", pipeline.sampler),
        ("DataSource", "datasource in dataloader", "data source", pipeline.data_source),
    )
    for title, where, label, expected in names:
        argument = label.replace(" ", "_")
        found = state[argument]
        if found != expected:
            raise StateMismatch(
                f"{title} in checkpoint does not match {where}.\n"
                f"{label} in checkpoint: {found}\n"
                f"{label} in dataloader: {expected}\n"
                f"They are compared by `repr({argument})`, so your own class may need a"
                " `__repr__` that does not change from run to run."
            )


def _parse(text: bytes) -> dict[str, Any]:
    if not isinstance(text, (bytes, bytearray)):
        raise TypeError(
            "A state must be the bytes that get_state() returned, got"
            f" {type(text).__name__}."
        )
    try:
        state = json.loads(text.decode())
    except ValueError as error:
        raise StateMismatch(
            f"Checkpoint is not the JSON text that get_state() returns: {error}. "
            "The file may be cut short or belong to something else."
        ) from error
    if not isinstance(state, dict):
        raise StateMismatch(
            f"Checkpoint is a JSON {type(state).__name__}, expected an object. The file"
            " may belong to something else."
        )
    return state
