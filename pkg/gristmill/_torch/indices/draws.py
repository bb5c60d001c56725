"""Batches of indices from torch's samplers, with exactly torch's random draws.

Indices are drawn in blocks, int64 arrays or ranges, instead of one Python int at a
time.  A generator advances at the same batches as with torch, so a user who holds it
sees no difference.

A batch of a block is an `IndexBatch`.  Only this module makes those, so they differ
from arrays and ranges that a user's sampler yields, which reach the dataset unchanged.

The indices of the next epoch are predicted from copies of generators, without changing
the generators.  The prediction is wrong if the program uses or sets a generator, or
sets another epoch, in the meantime.  Callers must compare it with the indices that are
drawn later.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from gristmill._torch.indices import distributed
from gristmill._torch.private import is_own

Block: TypeAlias = "np.ndarray[Any, Any] | range"

# The number of indices that RandomSampler draws at a time with replacement.
_TORCH_CHUNK = 32
# The number of indices that are converted to Python ints at a time.
_INT_CHUNK = 4096
# If a sampler draws more indices at once, drawing twice takes longer than waiting for
# the first batch of an epoch.
MAX_PREVIEW = 1 << 22


class IndexBatch:
    """A batch of indices, in place of the list that torch's sampler would yield.

    Attributes:
        block: The indices, at least one.  A range has step 1.
    """

    __slots__ = ("block",)

    def __init__(self, block: Block) -> None:
        self.block = block

    def __len__(self) -> int:
        return len(self.block)


def sampler_items(index_sampler: Any, as_lists: bool = False) -> Iterator[Any] | None:
    """Return an iterator over a sampler's items, or None for an unknown sampler.

    A batch of indices is a list if `as_lists`, else a list or an `IndexBatch`.
    `as_list` converts both to a list.
    """
    if type(index_sampler) is BatchSampler:
        return _iterate_batches(index_sampler, as_lists)
    if type(index_sampler) is RandomSampler:
        return integers(_random_blocks(index_sampler))
    return None


def blocks_of(
    sampler: Any, generator: torch.Generator | None = None
) -> Iterator[Block] | None:
    """Return the indices of a sampler in blocks, or None for an unknown sampler.

    `generator` replaces the one that `sampler` would use.
    """
    kind = type(sampler)
    draw = _DRAWS.get(kind)
    return draw(sampler, generator) if draw and is_own(kind, "__iter__") else None


def as_list(batch: Any) -> Any:
    """Convert an `IndexBatch` to a list, and return anything else unchanged."""
    return _int_list(batch.block) if type(batch) is IndexBatch else batch


def integers(blocks: Iterator[Block]) -> Iterator[int]:
    """Yield the indices of blocks, one by one."""
    for block in blocks:
        for start in range(0, len(block), _INT_CHUNK):
            yield from _int_list(block[start : start + _INT_CHUNK])


def _int_list(block: Block) -> list[int]:
    return list(block) if isinstance(block, range) else block.tolist()


def _iterate_batches(batch_sampler: BatchSampler, as_lists: bool) -> Iterator[Any]:
    blocks = blocks_of(batch_sampler.sampler)
    if blocks is None:
        yield from batch_sampler
    else:
        yield from batches(blocks, batch_sampler, as_lists)


def batches(
    blocks: Iterator[Block], batch_sampler: BatchSampler, as_lists: bool = False
) -> Iterator[Any]:
    """Yield the batches that `batch_sampler` makes of blocks, like `sampler_items`."""
    make_batch: Callable[[Any], Any] = IndexBatch
    drop_last, size = batch_sampler.drop_last, batch_sampler.batch_size
    block: Block = range(0)
    start = end = 0  # The part of `block` that is not yet in a batch.
    while True:
        if start + size > end:
            block = _extend_block(block[start:], blocks, size)
            start, end = 0, len(block)
            if as_lists:
                make_batch = list if isinstance(block, range) else np.ndarray.tolist
        if end - start < size:
            break
        yield make_batch(block[start : start + size])
        start += size
        if not drop_last:  # Torch reads the size of each batch.
            size = batch_sampler.batch_size
    if end > start and not drop_last:
        yield make_batch(block[start:])


def _extend_block(tail: Block, blocks: Iterator[Block], size: int) -> Block:
    """Join the tail of a block with further blocks, up to at least `size` indices."""
    parts, count = [tail] if len(tail) else [], len(tail)
    while count < size:
        block = next(blocks, None)
        if block is None:
            break
        parts.append(block)
        count += len(block)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else range(0)


def _sequential_blocks(
    sampler: SequentialSampler, generator: Any = None
) -> Iterator[Block]:
    yield range(len(sampler.data_source))


def make_epoch_generator(sampler: RandomSampler) -> torch.Generator:
    """Return the generator for an epoch: the sampler's own, or else a new one."""
    own_generator: torch.Generator | None = sampler.generator
    return _make_generator(None) if own_generator is None else own_generator


def preview_seeded_generator() -> torch.Generator:
    """Return the generator that torch's default one would seed for an epoch next."""
    return _make_generator(torch.default_generator.clone_state())


def _make_generator(seed_source: torch.Generator | None) -> torch.Generator:
    """Return a new generator, with a seed drawn from another, by default torch's."""
    seed = torch.empty((), dtype=torch.int64).random_(generator=seed_source).item()
    return torch.Generator().manual_seed(int(seed))


def _random_blocks(
    sampler: RandomSampler, generator: torch.Generator | None = None
) -> Iterator[Block]:
    high = len(sampler.data_source)
    generator = generator or make_epoch_generator(sampler)
    # Torch reads `num_samples` twice; it changes if the dataset grows in between.
    if sampler.replacement:
        for _ in range(sampler.num_samples // _TORCH_CHUNK):
            yield _integers_below(high, _TORCH_CHUNK, generator)
        yield _integers_below(high, sampler.num_samples % _TORCH_CHUNK, generator)
        return
    for _ in range(sampler.num_samples // high):
        yield torch.randperm(high, generator=generator).numpy(force=True)
    # Torch draws once more, even if it needs no more indices.
    extra = torch.randperm(high, generator=generator).numpy(force=True)
    yield extra[: sampler.num_samples % high]


def _integers_below(high: int, size: int, generator: torch.Generator) -> Block:
    indices = torch.randint(
        high=high, size=(size,), dtype=torch.int64, generator=generator
    )
    block: Block = indices.numpy(force=True)
    return block


def _weighted_blocks(
    sampler: WeightedRandomSampler, generator: torch.Generator | None = None
) -> Iterator[Block]:
    indices = torch.multinomial(
        sampler.weights,
        sampler.num_samples,
        sampler.replacement,
        generator=generator or sampler.generator,
    )
    yield indices.numpy(force=True)


def _distributed_blocks(
    sampler: distributed.DistributedSampler, generator: Any = None
) -> Iterator[Block]:
    yield sampler.indices()


# Keyed by exact type: a subclass may draw differently.
_DRAWS: dict[type, Callable[[Any, Any], Iterator[Block]]] = {
    distributed.DistributedSampler: _distributed_blocks,
    RandomSampler: _random_blocks,
    SequentialSampler: _sequential_blocks,
    WeightedRandomSampler: _weighted_blocks,
}


# Samplers whose epoch the program sets; the next one is predicted to be one higher.
_EPOCH_SAMPLERS = (DistributedSampler, distributed.DistributedSampler)


def can_preview(index_sampler: Any) -> bool:
    """Return whether `preview_epoch` supports a sampler, of batches or of samples."""
    kind = type(_sampler_of(index_sampler))
    is_known = kind in _DRAWS or kind in _EPOCH_SAMPLERS
    classes = (kind, type(index_sampler))
    return is_known and all(is_own(cls, "__iter__") for cls in classes)


def preview_epoch(index_sampler: Any) -> Iterator[Any]:
    """Yield the indices that a sampler will yield in its next iteration.

    For a `DistributedSampler` these are the indices of the next epoch.  Yields nothing
    if the sampler draws more than `MAX_PREVIEW` indices at once, or is not supported
    any more.  Stops if drawing fails: the next epoch raises the error, if it persists.
    """
    with contextlib.suppress(Exception):
        sampler = _sampler_of(index_sampler)
        if not can_preview(sampler) or _count_drawn_at_once(sampler) > MAX_PREVIEW:
            return
        blocks = _next_blocks(sampler)
        if sampler is index_sampler:
            yield from integers(blocks)
        else:
            yield from batches(blocks, index_sampler)


def _sampler_of(index_sampler: Any) -> Any:
    """Return the sampler of samples."""
    is_batched = type(index_sampler) is BatchSampler
    return index_sampler.sampler if is_batched else index_sampler


def _count_drawn_at_once(sampler: Any) -> int:
    """Return the number of indices that a sampler draws before it yields the first."""
    if type(sampler) in _EPOCH_SAMPLERS:
        return int(sampler.total_size)
    if type(sampler) is WeightedRandomSampler:
        return max(len(sampler.weights), int(sampler.num_samples))
    if type(sampler) is RandomSampler and not sampler.replacement:
        return len(sampler.data_source)
    return 0


def _next_blocks(sampler: Any) -> Iterator[Block]:
    """Return the blocks of a sampler's next epoch, drawn from copies of generators."""
    if type(sampler) in _EPOCH_SAMPLERS:
        sampler = copy.copy(sampler)
        sampler.epoch += 1
        return iter([np.array(list(sampler), np.int64)])
    generator = None
    if type(sampler) is RandomSampler and sampler.generator is None:
        # Torch seeds a generator for each epoch from its default one.
        generator = preview_seeded_generator()
    elif type(sampler) is not SequentialSampler:
        generator = (sampler.generator or torch.default_generator).clone_state()
    return _DRAWS[type(sampler)](sampler, generator)
