"""A dataset that batches elements of similar lengths."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gristmill import batching
from gristmill._dataset.model import states
from gristmill._dataset.model.error_notes import note_step
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.node import builds
from gristmill._dataset.model.spec import ShapeDtypeStruct
from gristmill._dataset.model.states import copy_state, replay
from gristmill._engine.bucket_batches import BucketBatches
from gristmill._hot import cancellation, tree
from gristmill.transforms._bucket import BucketBatch

# The parent's position is recorded at this interval, in elements.  Saved states depend
# on this value.
POSITION_INTERVAL = 16
# If the next position is less than this many elements ahead, they are read again rather
# than setting the parent's state.
_MAX_REREAD = 64


@builds("IterDataset.bucket_by_sequence_length")
def bucket_by_sequence_length(
    parent: IterDataset[Any], *lengths: Any, **named: Any
) -> BucketIterDataset:
    """See `IterDataset.bucket_by_sequence_length`."""
    return BucketIterDataset(parent, BucketBatch(*lengths, **named))


class BucketIterDataset(IterDataset[Any]):
    """Batches of elements whose lengths are in one bucket."""

    _KIND = "batch"

    def __init__(self, parent: IterDataset[Any], spec: BucketBatch) -> None:
        super().__init__(parent)
        self._spec = spec
        self._batches = BucketBatches(spec)
        self._drop_remainder = bool(spec.drop_remainder)

    def __iter__(self) -> DatasetIterator[Any]:
        return BucketDatasetIterator(self)

    @property
    def _element_spec(self) -> Any:
        if self._spec.batch_fn is not None:
            return super()._element_spec
        return tree.map_batch(
            lambda leaf: ShapeDtypeStruct(
                (None, *[None] * len(leaf[0].shape)), leaf[0].dtype
            ),
            [self._parent._element_spec],
            batching.tree_rules(),
        )

    def _arguments_text(self) -> str:
        buckets = self._spec.buckets()
        return (
            f"(boundaries={buckets.boundaries}, sizes={self._batches.sizes},"
            f" drop_remainder={self._drop_remainder})"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ParentPosition:
    """A position of the parent, and the number of elements before it."""

    number: int
    state: Any


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingElement:
    """An element that waits for its batch, `offset` elements after `position`."""

    position: ParentPosition
    offset: int
    element: Any


class BucketDatasetIterator(NodeIterator[Any]):
    """Iterates over batches of elements of similar lengths.

    The state has the positions from which the waiting elements can be read again, and
    their offsets from these positions.  They are stored in one string, so that the
    structure of the state does not depend on their number.
    """

    _FOLLOWS_PARENT = True
    _COMBINES_ELEMENTS = True

    def __init__(self, node: BucketIterDataset) -> None:
        super().__init__(node)
        self._batches = node._batches
        sizes = self._batches.sizes
        self._waiting: list[list[WaitingElement]] = [[] for _ in sizes]
        self._elements_read = 0
        # The last position recorded; None: record one before the next element.
        self._position: ParentPosition | None = None
        self._ended = False

    def __next__(self) -> Any:
        node = self._node
        while not self._ended:
            position = self._position
            if (
                position is None
                or self._elements_read - position.number >= POSITION_INTERVAL
            ):
                position = ParentPosition(
                    self._elements_read, copy_state(self._parent.get_state())
                )
                self._position = position
            cancellation.check()
            try:
                element = next(self._parents[0])
            except StopIteration:
                self._ended = True
                break
            waiting_element = WaitingElement(
                position, self._elements_read - position.number, element
            )
            self._elements_read += 1
            bucket = self._find_bucket(element)
            self._waiting[bucket].append(waiting_element)
            if len(self._waiting[bucket]) == self._batches.sizes[bucket]:
                return self._make_batch(bucket)
        for bucket, elements in enumerate(self._waiting):
            if node._drop_remainder:
                elements.clear()
            if elements:
                return self._make_batch(bucket)
        raise StopIteration

    def get_state(self) -> Any:
        """Return the parent's position, and those of the waiting elements."""
        groups: dict[int, list[Any]] = {}
        for waiting_element in sorted(
            itertools.chain(*self._waiting),
            key=lambda waiting_element: (
                waiting_element.position.number,
                waiting_element.offset,
            ),
        ):
            position = waiting_element.position
            group = groups.setdefault(
                position.number, [position.number, position.state, []]
            )
            group[2].append(waiting_element.offset)
        return {
            "parent": self._parent.get_state(),
            "taken": self._elements_read,
            "waiting": self._encode_positions([*groups.values()]),
        }

    def _encode_positions(self, groups: list[list[Any]]) -> str:
        """Encode the positions of waiting elements as one string."""
        try:
            text = json.dumps(groups)
            if json.loads(text) == groups:
                return text
        except (TypeError, ValueError):
            pass
        raise TypeError(
            f"{self} stores states of {self._parent} as JSON, which cannot represent"
            f" {groups[0][1]!r:.200}. get_state must return only dicts with str keys,"
            " lists, str, int, float, bool and None."
        )

    def _check_state(self, state: Any) -> None:
        states.check_values(self, state, _STATE)
        # The number of elements up to the last one that waits.
        min_read = 0
        for number, _, offsets in json.loads(state["waiting"]):
            if number < min_read or not offsets:
                raise states.mismatch(self, "has waiting elements out of order")
            min_read = number + offsets[-1] + 1
        if min_read > (elements_read := state["taken"]):
            raise states.mismatch(
                self, f"has taken {elements_read}, expected at least {min_read}"
            )

    def _go_to(self, state: Any) -> None:
        state_before = self._parent.get_state()
        try:
            waiting = self._read_again(json.loads(state["waiting"]))
        except Exception:
            states.go_to(self._parent, state_before)
            raise
        self._parent.set_state(state["parent"])
        self._waiting = waiting
        self._elements_read = state["taken"]
        self._position = None
        self._ended = False

    def _read_again(self, groups: Any) -> list[list[WaitingElement]]:
        """Read the waiting elements again, and return them by bucket."""
        sizes = self._batches.sizes
        waiting: list[list[WaitingElement]] = [[] for _ in sizes]
        for waiting_element in self._read_elements(groups):
            bucket = self._find_bucket(waiting_element.element)
            waiting[bucket].append(waiting_element)
            if len(waiting[bucket]) >= sizes[bucket]:
                raise self._data_mismatch(
                    f"at least {sizes[bucket]} elements, a whole batch, wait in bucket"
                    f" {bucket}"
                )
        return waiting

    def _read_elements(self, groups: Any) -> Iterator[WaitingElement]:
        """Read elements at (element number, parent state, offsets) again."""
        # The number of the element that the parent returns next; unknown at first, so
        # that the first group sets the parent's state.
        next_number = -_MAX_REREAD
        for number, state, offsets in groups:
            position = ParentPosition(number, state)
            if 0 <= number - next_number < _MAX_REREAD:
                replay(self._parent, number - next_number)
            else:
                self._parent.set_state(copy_state(state))
            elements = replay(self._parent, offsets[-1] + 1)
            next_number = number + len(elements)
            for offset in offsets:
                if offset >= len(elements):
                    raise self._data_mismatch(
                        f"element {number + offset} does not exist"
                    )
                yield WaitingElement(position, offset, elements[offset])

    def _data_mismatch(self, problem: str) -> Exception:
        return states.mismatch(self, f"was saved with other data: {problem}")

    def _find_bucket(self, element: Any) -> int:
        """Return the number of an element's bucket."""
        try:
            bucket: int = self._batches.bucket_of(element)
        except Exception as error:
            note_step(error, self)
            raise
        return bucket

    def _make_batch(self, bucket: int) -> Any:
        """Return the batch of all elements that wait in a bucket."""
        elements = [
            waiting_element.element for waiting_element in self._waiting[bucket]
        ]
        self._waiting[bucket].clear()
        try:
            return self._batches.batch(elements, bucket)
        except Exception as error:
            note_step(error, self, "made the batch of a bucket up to")
            raise


def _check_waiting(iterator: Any, value: Any, name: str) -> None:
    """Raise StateMismatch if a value does not encode positions and offsets."""
    try:
        groups = json.loads(value)
    except (TypeError, ValueError):
        groups = None
    if not isinstance(groups, list):
        raise states.mismatch(iterator, f"has {name} {value!r:.100}, expected a list")
    for group in groups:
        states.check_list(iterator, group, name, 3)
        number, state, offsets = group
        states.count(iterator, number, name)
        states.parent(iterator, state)
        if not isinstance(offsets, list):
            raise states.mismatch(
                iterator, f"has {name} {value!r:.100}, expected lists"
            )
        previous = -1
        for offset in offsets:
            states.count(iterator, offset, name)
            if not previous < offset < POSITION_INTERVAL:
                raise states.mismatch(
                    iterator,
                    f"has {name} {offset}, expected less than {POSITION_INTERVAL}",
                )
            previous = offset


_STATE: Mapping[str, states.Check] = states.fields(
    parent=states.parent, taken=states.count, waiting=_check_waiting
)
