"""What a loader's sampler will draw in its next epoch, found out without drawing it.

Draws are made from copies of generators, so that nobody can see them.  They are wrong
where somebody uses or sets a generator, or sets another epoch, in between: whoever
asks has to compare.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from gristmill._torch.indices.draws import Block, batches, blocks_of, integers

# To draw more at once twice takes longer than to wait for an epoch's first batch.
MOST_INDICES = 1 << 22
_RANDOM = (RandomSampler, WeightedRandomSampler)
_KNOWN = (*_RANDOM, SequentialSampler, DistributedSampler)


def can_foresee(index_sampler: Any) -> bool:
    """Whether `foreseen` knows how a sampler, of batches or of samples, draws."""
    return type(_sampler_of(index_sampler)) in _KNOWN


def foreseen(index_sampler: Any) -> Iterator[Any]:
    """What a sampler will give if it is iterated over again; nothing if that is long.

    Of a `DistributedSampler` in its next epoch.  Where drawing fails, or has come to be
    a class's that draws as it likes, there is nothing more: the epoch that is drawn
    raises it, if it is still so then.

    Args:
        index_sampler: Of batches or of samples.
    """
    with contextlib.suppress(Exception):
        sampler = _sampler_of(index_sampler)
        if not can_foresee(sampler) or _drawn_at_once(sampler) > MOST_INDICES:
            return
        blocks = _blocks(sampler)
        if sampler is index_sampler:
            yield from integers(blocks)
        else:
            yield from batches(blocks, index_sampler)


def _sampler_of(index_sampler: Any) -> Any:
    # By exact type: a subclass may draw otherwise.
    if type(index_sampler) is BatchSampler:
        return index_sampler.sampler
    return index_sampler


def _drawn_at_once(sampler: Any) -> int:
    """How many indices a sampler draws before it gives the first."""
    if type(sampler) is DistributedSampler:
        return int(sampler.total_size)
    if type(sampler) is WeightedRandomSampler:
        return max(len(sampler.weights), int(sampler.num_samples))
    if type(sampler) is RandomSampler and not sampler.replacement:
        return len(sampler.data_source)
    return 0


def _blocks(sampler: Any) -> Iterator[Block]:
    if type(sampler) is DistributedSampler:
        sampler = copy.copy(sampler)
        sampler.epoch += 1
        return iter([np.array(list(sampler), np.int64)])
    generator = _copied_generator(sampler) if type(sampler) in _RANDOM else None
    found = blocks_of(sampler, generator)
    assert found is not None, "can_foresee"
    return found


def _copied_generator(sampler: Any) -> torch.Generator:
    """One that draws what the sampler's will draw for its next epoch."""
    if sampler.generator is not None:
        held: torch.Generator = sampler.generator.clone_state()
        return held
    copied = torch.default_generator.clone_state()
    if type(sampler) is WeightedRandomSampler:
        return copied
    seed = torch.empty((), dtype=torch.int64).random_(generator=copied).item()
    return torch.Generator().manual_seed(int(seed))
