"""Gristmill's names for the arguments of torch's DataLoader."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_COMMON_ADVICE = {
    "num_workers": "is called worker_count here",
    "generator": "is not needed here: pass seed, an int",
    "persistent_workers": (
        "is not needed here: workers live as long as their iterator, and num_epochs of"
        " the sampler makes one iterator of several epochs"
    ),
    "pin_memory": (
        "is not needed here: gristmill.torch.as_tensors and gristmill.jax"
        ".prefetch_to_device take batches to a device"
    ),
    "batch_sampler": (
        "is not needed here: pass a sampler, and Batch(batch_size) among the"
        " transformations; gristmill.torch.DataLoader takes batch samplers"
    ),
    "multiprocessing_context": "is not needed here: workers start in one way",
    "in_order": "is not needed here: elements always come in order",
    "pin_memory_device": "is not needed here: see gristmill.torch.as_tensors",
}
# Advice for `DataLoader`.
OF_LOADER = _COMMON_ADVICE | {
    "dataset": "is called data_source here",
    "batch_size": "is an operation here: operations=[Batch(batch_size)]",
    "drop_last": (
        "is an argument of the operation here: Batch(batch_size, drop_remainder=True)"
    ),
    "collate_fn": (
        "is an argument of the operation here: Batch(batch_size, batch_fn=collate_fn)"
    ),
    "shuffle": (
        "is an argument of the sampler here:"
        " sampler=IndexSampler(len(source), shuffle=True, seed=0)"
    ),
    "prefetch_factor": "is called worker_buffer_size here",
    "timeout": "is called stall_timeout here",
}
# Advice for `load`.
OF_LOAD = _COMMON_ADVICE | {
    "dataset": "is the first argument here, source",
    "drop_last": "is called drop_remainder here",
    "collate_fn": (
        "is an argument of a transformation here:"
        " transformations=[Batch(batch_size, batch_fn=collate_fn)]"
    ),
    "sampler": "is an argument of DataLoader; load() makes an IndexSampler",
    "prefetch_factor": "is worker_buffer_size of DataLoader here",
    "timeout": "is stall_timeout of DataLoader here",
}


def reject_torch_names(
    names: Mapping[str, str],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that rejects torch's arguments with advice.

    The decorated function raises TypeError if it gets one of them.

    Args:
        names: The advice for each argument.
    """

    def reject(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            advice = [f"{name} {names[name]}" for name in kwargs if name in names]
            if advice:
                raise TypeError(
                    f"These are arguments of torch's DataLoader: {'; '.join(advice)}."
                )
            return function(*args, **kwargs)

        return checked

    return reject
