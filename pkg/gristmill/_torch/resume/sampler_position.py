"""The position in an index sampler.  Batches and random draws are torch's."""

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

# Keys of torchdata's states of samplers.
_SAMPLES = "samples_yielded"
_SAMPLER = "sampler_state"
_ITERATOR = "sampler_iter_state"
_YIELDED = "yielded"
_GENERATOR = "generator"

_KEYS = (layout.INDEX_SAMPLER, layout.SAMPLER_ITER, layout.SAMPLER_YIELDED)

# Exact types, because a subclass may draw in another way.
_GENERATED = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class SamplerPosition:
    """An iterator over an index sampler that saves and restores its position.

    It yields the items of `draws.sampler_items`.

    Args:
        index_sampler: The loader's index sampler: torch's `BatchSampler`, or any other.
        iteration: The result of ``iter(index_sampler)``, which a library may have
            advanced or replaced.
        lists: Whether all batches of indices are lists, and none is an `IndexBatch`.
    """

    def __init__(
        self, index_sampler: Any, iteration: Iterator[Any], lists: bool = False
    ) -> None:
        self.index_sampler = index_sampler
        self._lists = lists
        self._batched = type(index_sampler) is BatchSampler
        self._epoch: _GeneratedEpoch | _IteratedEpoch
        self._epoch = _IteratedEpoch(None if self._batched else iteration)
        # None until the epoch begins.
        self._items: Iterator[Any] | None = None
        draws_blocks = type(index_sampler) in (BatchSampler, RandomSampler)
        if draws_blocks and not private.is_unread(iteration, index_sampler):
            self._items = iteration
        self._batches = 0
        self._samples = 0
        # The numbers of batches that were delivered before the state was saved.
        self._delivered: set[int] = set()
        # The state that was restored, until the next batch.  Users' objects may restore
        # their states only then.
        self._restored: State | None = None

    def __iter__(self) -> SamplerPosition:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._begin()
        delivered = True
        while delivered:
            batch = next(self._items)
            self._restored = None
            delivered = self._batches in self._delivered
            self._batches += 1
            if self._batched:
                self._samples += len(batch)
        return batch

    def skip(self, saved: Saved) -> None:
        """Draw and drop the batches that were delivered after a snapshot.

        After a finished epoch its end is drawn, too.  A generator, or a sampler that
        restores itself while it is iterated over, is then ready for the next epoch.
        """
        for _ in itertools.islice(self, saved.later_steps + saved.finished):
            pass

    def state(self) -> State:
        """Return the position.  The order of the epoch is fixed from then on."""
        if self._restored is not None:
            return layout.copy_state(self._restored)
        if self._items is None:
            self._items = self._begin()
        batches = self._batches
        count = self._samples if self._batched else batches
        parts = self._epoch.states(self._sampler, count, self._batched)
        state: State = dict(zip(_KEYS, (*parts, batches), strict=True))
        if self._delivered:
            ahead = [number - batches for number in sorted(self._delivered)]
            if ahead[-1] >= 0:
                state[layout.DELIVERED_AHEAD] = [
                    number for number in ahead if number >= 0
                ]
        return state

    def restore(self, state: State) -> None:
        """Continue from a state of this class, or of torchdata's samplers."""
        self._restored = {key: state[key] for key in _KEYS}
        by_sampler, by_iterator, self._batches = self._restored.values()
        if ahead := state.get(layout.DELIVERED_AHEAD):
            self._restored[layout.DELIVERED_AHEAD] = ahead
            self._delivered = {self._batches + number for number in ahead}
        count, generator = self._batches, (by_iterator or {}).get(_GENERATOR)
        if self._batched:
            # Accelerate corrects the sampler's part.  Older torchdata has no other.
            both = {**(by_iterator or {}), **(by_sampler or {})}
            self._samples = both.get(_SAMPLES, count * self.index_sampler.batch_size)
            by_sampler, by_iterator = both.get(_SAMPLER), both.get(_ITERATOR)
            count, generator = (
                self._samples,
                {**both, **(by_iterator or {})}.get(_GENERATOR),
            )
        sampler = self._sampler
        if not _is_generated(sampler):
            restored = layout.restore(sampler, by_sampler)
            self._epoch = _IteratedEpoch(iter(sampler))
            restored = layout.restore(self._epoch.iterator, by_iterator) or restored
            count = 0 if restored else count
        self._items = self._begin(count, generator)

    @property
    def _sampler(self) -> Any:
        return self.index_sampler.sampler if self._batched else self.index_sampler

    def _begin(self, count: int = 0, generator_state: Any = None) -> Iterator[Any]:
        """Return the items of the epoch after `count` samples.

        Random numbers are drawn immediately, because other code may use the generator
        afterwards.
        """
        sampler, batched = self._sampler, self._batched
        if _is_generated(sampler):
            self._epoch = _GeneratedEpoch(sampler, generator_state)
        blocks = draws.blocks_of(sampler, self._epoch.generator)
        if blocks is None:
            samples = self._epoch.samples(sampler, count)
            return _batches(samples, self.index_sampler) if batched else samples
        blocks = _after(blocks, count)
        first = next(blocks, None)
        blocks = itertools.chain([] if first is None else [first], blocks)
        if batched:
            return draws.batches(blocks, self.index_sampler, self._lists)
        return draws.integers(blocks)


class _GeneratedEpoch:
    """An epoch that a sampler of torch's draws from a generator.

    Its state is the state of the generator at the beginning.
    """

    def __init__(self, sampler: Any, generator_state: Any) -> None:
        self.generator: torch.Generator
        if generator_state is not None:
            self.generator = sampler.generator or torch.Generator()
            state = torch.as_tensor(generator_state, dtype=torch.uint8)
            self.generator.set_state(state)
        elif type(sampler) is RandomSampler:
            self.generator = draws.epoch_generator(sampler)
        else:
            self.generator = sampler.generator or torch.default_generator
        self._beginning = self.generator.get_state()

    def samples(self, sampler: Any, count: int) -> Iterator[Any]:
        """Return the samples after the first `count`."""
        sampler = copy.copy(sampler)
        sampler.generator = self.generator
        iterator = iter(sampler)
        drawn = itertools.chain([*itertools.islice(iterator, 1)], iterator)
        return itertools.islice(drawn, count, None)

    def states(self, sampler: Any, count: int, batched: bool) -> tuple[Any, Any]:
        """Return the states of the index sampler and its iterator after `count`."""
        own = {_YIELDED: count, _GENERATOR: self._beginning}
        if not batched:
            return None, own
        state: State = {_SAMPLES: count}
        if type(sampler) is RandomSampler:
            state[_ITERATOR] = own
        else:
            # Torchdata would restore an iterator's state by the iterator.
            state[_GENERATOR] = self._beginning
        return {_SAMPLES: count}, state


class _IteratedEpoch:
    """An epoch of any other sampler, which is iterated over or draws the same again.

    Its state is that of the sampler or its iterator if one of them is stateful.
    """

    generator = None

    def __init__(self, iterator: Iterator[Any] | None) -> None:
        self.iterator = iterator

    def samples(self, sampler: Any, count: int) -> Iterator[Any]:
        """Return the samples after the first `count`."""
        if self.iterator is None:
            self.iterator = iter(sampler)
        if not isinstance(sampler, private.EndlessSampler):
            next(itertools.islice(self.iterator, count, count), None)
        return self.iterator

    def states(self, sampler: Any, count: int, batched: bool) -> tuple[Any, Any]:
        """Return the states of the index sampler and its iterator after `count`."""
        by_sampler, by_iterator = map(layout.state_of, (sampler, self.iterator))
        if not batched:
            return by_sampler, by_iterator
        state: State = {_SAMPLES: count}
        if by_sampler is not None:
            state[_SAMPLER] = by_sampler
        if by_iterator is not None:
            state[_ITERATOR] = by_iterator
        return {_SAMPLES: count}, state


def _is_generated(sampler: Any) -> bool:
    return type(sampler) in _GENERATED and private.is_own(type(sampler), "__iter__")


def _after(blocks: Iterator[draws.Block], count: int) -> Iterator[draws.Block]:
    """Yield blocks without their first `count` indices."""
    for block in blocks:
        if count < len(block):
            yield block[count:]
        count = max(0, count - len(block))


def _batches(
    samples: Iterator[Any], batch_sampler: BatchSampler
) -> Iterator[list[Any]]:
    """Yield the batches that `batch_sampler` makes of samples, drawn one by one."""
    if batch_sampler.drop_last:
        copies = [samples] * batch_sampler.batch_size
        yield from map(list, zip(*copies, strict=False))
        return
    while batch := list(itertools.islice(samples, batch_sampler.batch_size)):
        yield batch
