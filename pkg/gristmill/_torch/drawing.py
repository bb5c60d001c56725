"""Batches of indices from torch's samplers, with exactly torch's random draws.

A draw is a block, an int64 array or a range, instead of a Python int at a time.  It
happens at the same moment as torch's: a sampler whose generator the user holds is
seen to advance at the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

Block: TypeAlias = "np.ndarray[Any, Any] | range"

# RandomSampler with replacement draws as many at a time.
_TORCH_DRAW = 32
# As many where nobody can see it, since nobody else has the generator.
_PRIVATE_DRAW = 1024 * _TORCH_DRAW
# Indices that are Python ints at the same time.
_INTS = 4096


def drawn(index_sampler: Any) -> Iterator[Any] | None:
    """What `index_sampler` gives, or None where only itself knows how to draw.

    A batch of indices is a block or a list; `as_list` makes a list of either.
    """
    if type(index_sampler) is BatchSampler:
        return _batches(index_sampler)
    if type(index_sampler) is RandomSampler:
        return _integers(_random(index_sampler))
    return None


def as_list(batch: Any) -> Any:
    """A batch of indices as the list that torch would make of it."""
    if type(batch) is np.ndarray:
        return batch.tolist()
    return list(batch) if type(batch) is range else batch


def _integers(blocks: Iterator[Block]) -> Iterator[int]:
    for block in blocks:
        for start in range(0, len(block), _INTS):
            yield from as_list(block[start : start + _INTS])


def _batches(batch_sampler: BatchSampler) -> Iterator[Any]:
    draw = _DRAWS.get(type(batch_sampler.sampler))
    if draw is None:
        yield from batch_sampler
        return
    blocks = draw(batch_sampler.sampler)
    drop_last, size = batch_sampler.drop_last, batch_sampler.batch_size
    block: Block = range(0)
    at = end = 0
    while True:
        if at + size > end:
            block = _grown(block[at:], blocks, size)
            at, end = 0, len(block)
        if end - at < size:
            break
        yield block[at : at + size]
        at += size
        if not drop_last:  # Torch reads the size of each batch.
            size = batch_sampler.batch_size
    if end > at and not drop_last:
        yield block[at:]


def _grown(rest: Block, blocks: Iterator[Block], size: int) -> Block:
    """The rest of a block and so many further ones that `size` are there."""
    parts, count = [rest] if len(rest) else [], len(rest)
    while count < size:
        block = next(blocks, None)
        if block is None:
            break
        parts.append(block)
        count += len(block)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else range(0)


def _sequential(sampler: SequentialSampler) -> Iterator[Block]:
    yield range(len(sampler.data_source))


def _random(sampler: RandomSampler) -> Iterator[Block]:
    high, generator = len(sampler.data_source), sampler.generator
    at_once = _TORCH_DRAW
    if generator is None:
        seed = torch.empty((), dtype=torch.int64).random_().item()
        generator = torch.Generator()
        generator.manual_seed(seed)
        at_once = _PRIVATE_DRAW
    count = sampler.num_samples
    if sampler.replacement:
        for start in range(0, count - count % _TORCH_DRAW, at_once):
            size = min(at_once, count - count % _TORCH_DRAW - start)
            yield _integers_below(high, size, generator)
        yield _integers_below(high, count % _TORCH_DRAW, generator)
        return
    for _ in range(count // high):
        yield torch.randperm(high, generator=generator).numpy(force=True)
    # Torch draws once more though it may need none of it.
    extra = torch.randperm(high, generator=generator).numpy(force=True)
    yield extra[: count % high]


def _integers_below(high: int, size: int, generator: torch.Generator) -> Block:
    integers = torch.randint(
        high=high, size=(size,), dtype=torch.int64, generator=generator
    )
    found: Block = integers.numpy(force=True)
    return found


def _weighted(sampler: WeightedRandomSampler) -> Iterator[Block]:
    weights, count = sampler.weights, sampler.num_samples
    integers = torch.multinomial(
        weights, count, sampler.replacement, generator=sampler.generator
    )
    yield integers.numpy(force=True)


# By exact type: a subclass may draw otherwise.
_DRAWS: dict[type, Callable[[Any], Iterator[Block]]] = {
    RandomSampler: _random,
    SequentialSampler: _sequential,
    WeightedRandomSampler: _weighted,
}
