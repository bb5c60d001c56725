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
from gristmill._torch.layout import SavedState, State

# Keys of torchdata's states of samplers.
_SAMPLES = "samples_yielded"
_SAMPLER = "sampler_state"
_ITERATOR = "sampler_iter_state"
_YIELDED = "yielded"
_GENERATOR = "generator"

_KEYS = (layout.INDEX_SAMPLER, layout.SAMPLER_ITER, layout.SAMPLER_YIELDED)

# Exact types, because a subclass may draw in another way.
_GENERATOR_SAMPLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class SamplerPosition:
    """An iterator over an index sampler that saves and restores its position.

    It yields the items of `draws.sampler_items`.

    Args:
        index_sampler: The loader's index sampler: torch's `BatchSampler`, or any other.
        iteration: The result of ``iter(index_sampler)``, which a library may have
            advanced or replaced.
        as_lists: Whether all batches of indices are lists, and none is an `IndexBatch`.

    Attributes:
        index_sampler: The argument.
    """

    def __init__(
        self, index_sampler: Any, iteration: Iterator[Any], as_lists: bool = False
    ) -> None:
        self.index_sampler = index_sampler
        self._as_lists = as_lists
        self._is_batched = type(index_sampler) is BatchSampler
        self._order: _GeneratedOrder | _IteratedOrder
        self._order = _IteratedOrder(None if self._is_batched else iteration)
        # None until the epoch begins.
        self._items: Iterator[Any] | None = None
        # The sampler of an order that `state` fixed, until the first batch.
        self._early_sampler: Any = None
        # Whether torch's generator draws the seed of that order at the first batch.
        self._is_seed_pending = False
        # If a library has advanced or replaced `iteration`, its items are yielded, and
        # not an order drawn in blocks.
        draws_blocks = type(index_sampler) in (BatchSampler, RandomSampler)
        if draws_blocks and not private.is_unread(iteration, index_sampler):
            self._items = iteration
        # The numbers of items and samples drawn in this epoch, including items that
        # were left out.  Samples are counted only if items are batches.
        self._batch_count = 0
        self._sample_count = 0
        # The numbers in the epoch, from 0, of batches that were delivered ahead of the
        # saved position.  `__next__` leaves them out.
        self._delivered_ahead: set[int] = set()
        # The state that was restored, until the next batch.  Users' objects may restore
        # their states only then.
        self._restored: State | None = None

    def __iter__(self) -> SamplerPosition:
        return self

    def __next__(self) -> Any:
        if self._items is None or self._is_sampler_replaced():
            self._items = self._begin_epoch()
        if self._is_seed_pending:
            self._draw_pending_seed()
        is_delivered = True
        while is_delivered:
            batch = next(self._items)
            self._restored = None
            is_delivered = self._batch_count in self._delivered_ahead
            self._batch_count += 1
            if self._is_batched:
                self._sample_count += len(batch)
        return batch

    def skip(self, saved: SavedState) -> None:
        """Draw and drop the batches that were delivered after a snapshot.

        After a finished epoch its end is drawn, too.  A generator, or a sampler that
        restores itself while it is iterated over, is then ready for the next epoch.
        """
        for _ in itertools.islice(self, saved.later_steps + saved.finished):
            pass

    def state(self, *, leaves_generator: bool = False) -> State:
        """Return the position.

        The order of the epoch is fixed from then on, unless the sampler is replaced
        before the first batch.

        Args:
            leaves_generator: Whether torch's default generator draws the seed of the
                order only at the first batch, as without this call.
        """
        if self._is_seed_pending and not leaves_generator:
            self._draw_pending_seed()
        if self._restored is not None:
            return layout.copy_state(self._restored)
        if self._items is None:
            self._early_sampler = self._sampler
            generator_state = None
            if leaves_generator and _draws_seed(self._sampler):
                self._is_seed_pending = True
                generator_state = draws.preview_seeded_generator().get_state()
            self._items = self._begin_epoch(generator_state=generator_state)
        batches = self._batch_count
        samples = self._sample_count if self._is_batched else batches
        parts = self._order.states(self._sampler, samples, self._is_batched)
        state: State = dict(zip(_KEYS, (*parts, batches), strict=True))
        if self._is_seed_pending:
            state[layout.SEED_PENDING] = True
        if self._delivered_ahead:
            ahead = [number - batches for number in sorted(self._delivered_ahead)]
            if ahead[-1] >= 0:
                state[layout.DELIVERED_AHEAD] = [
                    number for number in ahead if number >= 0
                ]
        return state

    def restore(self, state: State) -> None:
        """Continue from a state of this class, or of torchdata's samplers."""
        self._restored = {key: state[key] for key in _KEYS}
        index_sampler_state, index_iter_state, batches = self._restored.values()
        self._batch_count = batches
        if ahead := state.get(layout.DELIVERED_AHEAD):
            self._restored[layout.DELIVERED_AHEAD] = ahead
            self._delivered_ahead = {batches + number for number in ahead}
        if self._is_batched:
            # The sampler's part overrides the iterator's, because Accelerate corrects
            # it.  Older torchdata saves no other.
            batch_state = {**(index_iter_state or {}), **(index_sampler_state or {})}
            samples = batch_state.get(_SAMPLES, batches * self.index_sampler.batch_size)
            self._sample_count = samples
            sampler_state = batch_state.get(_SAMPLER)
            iter_state = batch_state.get(_ITERATOR)
            generator_state = {**batch_state, **(iter_state or {})}.get(_GENERATOR)
        else:
            samples = batches
            sampler_state, iter_state = index_sampler_state, index_iter_state
            generator_state = (iter_state or {}).get(_GENERATOR)
        sampler = self._sampler
        if state.get(layout.SEED_PENDING) and _draws_seed(sampler):
            self._restored[layout.SEED_PENDING] = self._is_seed_pending = True
        if not _draws_from_generator(sampler):
            is_restored = layout.restore(sampler, sampler_state)
            self._order = _IteratedOrder(iter(sampler))
            is_restored |= layout.restore(self._order.iterator, iter_state)
            # A restored sampler or iterator continues by itself.
            samples = 0 if is_restored else samples
        self._items = self._begin_epoch(samples, generator_state)

    @property
    def _sampler(self) -> Any:
        """The sampler of samples."""
        return self.index_sampler.sampler if self._is_batched else self.index_sampler

    def _is_sampler_replaced(self) -> bool:
        """Return whether the order that `state` fixed is not that of the sampler.

        Accelerate takes the state of a new loader, and then replaces its sampler.
        """
        early, self._early_sampler = self._early_sampler, None
        if early is None or early is self._sampler:
            return False
        self._order = _IteratedOrder(None)
        self._is_seed_pending = False
        return True

    def _draw_pending_seed(self) -> None:
        """Let torch's generator advance as if it drew the order now."""
        self._is_seed_pending = False
        draws.make_epoch_generator(self._sampler)
        if self._restored is not None:
            del self._restored[layout.SEED_PENDING]

    def _begin_epoch(
        self, count: int = 0, generator_state: Any = None
    ) -> Iterator[Any]:
        """Choose the order of the epoch, and return its items after `count` samples.

        Random numbers are drawn immediately, because other code may use the generator
        afterwards.
        """
        sampler, is_batched = self._sampler, self._is_batched
        if _draws_from_generator(sampler):
            self._order = _GeneratedOrder(sampler, generator_state)
        blocks = draws.blocks_of(sampler, self._order.generator)
        if blocks is None:
            samples = self._order.samples(sampler, count)
            return _batches(samples, self.index_sampler) if is_batched else samples
        blocks = _after(blocks, count)
        # Draw the first block now.
        first = next(blocks, None)
        blocks = itertools.chain([] if first is None else [first], blocks)
        if is_batched:
            return draws.batches(blocks, self.index_sampler, self._as_lists)
        return draws.integers(blocks)


class _GeneratedOrder:
    """The order of an epoch that a sampler of torch's draws from a generator.

    Its state is the state of the generator at the beginning.
    """

    def __init__(self, sampler: Any, generator_state: Any) -> None:
        self.generator: torch.Generator
        if generator_state is not None:
            self.generator = sampler.generator or torch.Generator()
            state = torch.as_tensor(generator_state, dtype=torch.uint8)
            self.generator.set_state(state)
        elif type(sampler) is RandomSampler:
            self.generator = draws.make_epoch_generator(sampler)
        else:
            self.generator = sampler.generator or torch.default_generator
        self._initial_state = self.generator.get_state()

    def samples(self, sampler: Any, count: int) -> Iterator[Any]:
        """Return the samples after the first `count`."""
        sampler = copy.copy(sampler)
        sampler.generator = self.generator
        iterator = iter(sampler)
        # Draw the first sample now, see `_begin_epoch`.
        samples = itertools.chain([*itertools.islice(iterator, 1)], iterator)
        return itertools.islice(samples, count, None)

    def states(self, sampler: Any, count: int, is_batched: bool) -> tuple[Any, Any]:
        """Return the states of the index sampler and its iterator after `count`."""
        iter_state = {_YIELDED: count, _GENERATOR: self._initial_state}
        if not is_batched:
            return None, iter_state
        index_iter_state: State = {_SAMPLES: count}
        if type(sampler) is RandomSampler:
            index_iter_state[_ITERATOR] = iter_state
        else:
            # Torchdata fails on `_ITERATOR` if the sampler's iterator is not stateful.
            index_iter_state[_GENERATOR] = self._initial_state
        return {_SAMPLES: count}, index_iter_state


class _IteratedOrder:
    """The order of an epoch of any other sampler.

    The sampler's iterator is kept, or the sampler yields the same order again.

    Its state is that of the sampler or its iterator if one of them is stateful.
    """

    generator = None

    def __init__(self, iterator: Iterator[Any] | None) -> None:
        self.iterator = iterator

    def samples(self, sampler: Any, count: int) -> Iterator[Any]:
        """Return the samples after the first `count`."""
        if self.iterator is None:
            self.iterator = iter(sampler)
        if not isinstance(sampler, private.EndlessSampler):  # All its items are None.
            next(itertools.islice(self.iterator, count, count), None)
        return self.iterator

    def states(self, sampler: Any, count: int, is_batched: bool) -> tuple[Any, Any]:
        """Return the states of the index sampler and its iterator after `count`."""
        sampler_state, iter_state = map(layout.state_of, (sampler, self.iterator))
        if not is_batched:
            return sampler_state, iter_state
        index_iter_state: State = {_SAMPLES: count}
        if sampler_state is not None:
            index_iter_state[_SAMPLER] = sampler_state
        if iter_state is not None:
            index_iter_state[_ITERATOR] = iter_state
        return {_SAMPLES: count}, index_iter_state


def _draws_from_generator(sampler: Any) -> bool:
    is_known = type(sampler) in _GENERATOR_SAMPLERS
    return is_known and private.is_own(type(sampler), "__iter__")


def _draws_seed(sampler: Any) -> bool:
    """Return whether a sampler draws the seed of each epoch from torch's generator."""
    is_known = _draws_from_generator(sampler) and type(sampler) is RandomSampler
    return is_known and sampler.generator is None


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
