"""Where a loader stands: in what its sampler draws, and in what its workers answer.

Batches and random draws are torch's.  What a position is made of depends on the
sampler:

* one that is Stateful, or whose iterator is, says and restores it itself;
* of one with a generator it is the generator's state at the beginning of the epoch and
  a count: the epoch is drawn again, as arrays, and entered at the count;
* of any other it is the count, up to which it is iterated over.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from gristmill._torch import layout, private
from gristmill._torch.indices import draws
from gristmill._torch.layout import Saved, State

# Within torchdata's states of samplers.
_SAMPLES = "samples_yielded"
_SAMPLER = "sampler_state"
_ITERATOR = "sampler_iter_state"
_YIELDED = "yielded"
_GENERATOR = "generator"

_KEYS = (layout.INDEX_SAMPLER, layout.SAMPLER_ITER, layout.SAMPLER_YIELDED)

# By exact type: a subclass may draw otherwise.
_GENERATED = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class SamplerPosition:
    """An iteration over an index sampler.

    Its items are those of `draws.drawn`.

    Args:
        index_sampler: The loader's: torch's `BatchSampler`, or anything else.
        iteration: What a library has made of ``iter(index_sampler)``.
        lists: Whether all batches of indices are lists, and none is a `Drawn`.
    """

    def __init__(
        self, index_sampler: Any, iteration: Iterator[Any], lists: bool = False
    ) -> None:
        self.index_sampler = index_sampler
        self._lists = lists
        self._batched = type(index_sampler) is BatchSampler
        # The iterator of a sampler that torch iterates over, if it was made.
        self._iterator = None if self._batched else iteration
        # What a generator's state was when the epoch began.
        self._origin: torch.Tensor | None = None
        self._given: Iterator[Any] | None = None
        draws_blocks = type(index_sampler) in (BatchSampler, RandomSampler)
        if draws_blocks and not private.is_unread(iteration, index_sampler):
            self._given = iteration
        self._batches = 0
        self._samples = 0
        # Numbers of batches that somebody has got already.
        self._passed: set[int] = set()
        # A state that still holds, for users' objects that restore themselves later.
        self._loaded: State | None = None

    def __iter__(self) -> SamplerPosition:
        return self

    def __next__(self) -> Any:
        if self._given is None:
            self._given = self._begin(0, None)
        passed = True
        while passed:
            batch = next(self._given)
            self._loaded = None
            passed = self._batches in self._passed
            self._batches += 1
            if self._batched:
                self._samples += len(batch)
        return batch

    def skip(self, saved: Saved) -> None:
        """Draw what was given after a snapshot, for nobody.

        At the end of an epoch the end too, so that a generator, or a sampler that
        restores itself while it is iterated over, is ready for the next epoch.
        """
        for _ in itertools.islice(self, saved.later_steps + saved.finished):
            pass

    def state(self) -> State:
        """Where it stands.  The order of an epoch is decided by then."""
        if self._loaded is not None:
            return layout.copied(self._loaded)
        if self._given is None:
            self._given = self._begin(0, None)
        by_sampler = layout.state_of(self._sampler)
        by_iterator = layout.state_of(self._iterator)
        if by_iterator is None and self._origin is not None:
            count = self._samples if self._batched else self._batches
            by_iterator = {_YIELDED: count, _GENERATOR: self._origin}
        if self._batched:
            by_sampler, by_iterator = self._batch_states(by_sampler, by_iterator)
        parts = (by_sampler, by_iterator, self._batches)
        state: State = dict(zip(_KEYS, parts, strict=True))
        ahead = sorted(passed - self._batches for passed in self._passed)
        if ahead and ahead[-1] >= 0:
            state[layout.GIVEN_AHEAD] = [number for number in ahead if number >= 0]
        return state

    def restore(self, state: State) -> None:
        """Go on from a state of this class, or of torchdata's samplers."""
        self._loaded = {key: state[key] for key in _KEYS}
        by_sampler, by_iterator, self._batches = self._loaded.values()
        if ahead := state.get(layout.GIVEN_AHEAD):
            self._loaded[layout.GIVEN_AHEAD] = ahead
            self._passed = {self._batches + number for number in ahead}
        count, origin = self._batches, _origin(by_iterator)
        if self._batched:
            # Accelerate corrects the sampler's part; older torchdata has no other.
            both = {**(by_iterator or {}), **(by_sampler or {})}
            self._samples = both.get(_SAMPLES, count * self.index_sampler.batch_size)
            by_sampler, by_iterator = both.get(_SAMPLER), both.get(_ITERATOR)
            count, origin = self._samples, _origin({**both, **(by_iterator or {})})
        if origin is not None and type(self._sampler) in _GENERATED:
            self._given = self._begin(count, origin)
            return
        restored = layout.restore(self._sampler, by_sampler)
        self._iterator = iter(self._sampler)
        restored = layout.restore(self._iterator, by_iterator) or restored
        self._given = self._begin(0 if restored else count, None)

    @property
    def _sampler(self) -> Any:
        return self.index_sampler.sampler if self._batched else self.index_sampler

    def _batch_states(
        self, by_sampler: State | None, by_iterator: State | None
    ) -> tuple[State, State]:
        """The states of a batch sampler and its iterator, which torchdata nests."""
        state: State = {_SAMPLES: self._samples}
        if by_sampler is not None:
            state[_SAMPLER] = by_sampler
        if self._origin is None or type(self._sampler) is RandomSampler:
            if by_iterator is not None:
                state[_ITERATOR] = by_iterator
        else:
            # Torchdata would give an iterator's state to the iterator.
            state[_GENERATOR] = self._origin
        return {_SAMPLES: self._samples}, state

    def _begin(self, count: int, origin: torch.Tensor | None) -> Iterator[Any]:
        """What is given after `count` samples, drawn from `origin` where that is known.

        What is random is drawn at once: another may use the generator afterwards.
        """
        sampler = self._sampler
        generator = _generator_of(sampler, origin)
        if generator is not None:
            self._origin = generator.get_state()
        blocks = draws.blocks_of(sampler, generator)
        if blocks is None:
            return self._begin_plainly(count, generator)
        blocks = _after(blocks, count)
        first = next(blocks, None)
        blocks = itertools.chain([] if first is None else [first], blocks)
        if self._batched:
            return draws.batches(blocks, self.index_sampler, self._lists)
        return draws.integers(blocks)

    def _begin_plainly(
        self, count: int, generator: torch.Generator | None
    ) -> Iterator[Any]:
        sampler = self._sampler
        if type(sampler) is SubsetRandomSampler:
            sampler = copy.copy(sampler)
            sampler.generator = generator
            iterator = iter(sampler)
            iterator = itertools.chain([*itertools.islice(iterator, 1)], iterator)
        elif self._iterator is None:
            iterator = self._iterator = iter(sampler)
        else:
            iterator = self._iterator
        if not isinstance(sampler, private.EndlessSampler):
            next(itertools.islice(iterator, count, count), None)
        return _batched(iterator, self.index_sampler) if self._batched else iterator


def _generator_of(sampler: Any, origin: torch.Tensor | None) -> torch.Generator | None:
    """What draws an epoch, in the state `origin` if that is known."""
    if type(sampler) not in _GENERATED or not private.is_own(type(sampler), "__iter__"):
        return None
    if origin is None:
        if type(sampler) is RandomSampler:
            return draws.epoch_generator(sampler)
        return sampler.generator or torch.default_generator
    generator: torch.Generator = sampler.generator or torch.Generator()
    return generator.set_state(origin)


def _origin(state: State | None) -> torch.Tensor | None:
    found = (state or {}).get(_GENERATOR)
    return None if found is None else torch.as_tensor(found, dtype=torch.uint8)


def _after(blocks: Iterator[draws.Block], count: int) -> Iterator[draws.Block]:
    """The blocks less their first `count` indices."""
    for block in blocks:
        if count < len(block):
            yield block[count:]
        count = max(0, count - len(block))


def _batched(
    samples: Iterator[Any], batch_sampler: BatchSampler
) -> Iterator[list[Any]]:
    """The batches that `batch_sampler` makes of samples, which are not drawn early."""
    if batch_sampler.drop_last:
        alike = [samples] * batch_sampler.batch_size
        yield from map(list, zip(*alike, strict=False))
        return
    while batch := list(itertools.islice(samples, batch_sampler.batch_size)):
        yield batch
