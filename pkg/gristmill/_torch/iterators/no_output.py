"""Warns of torch loaders without batches, like `gristmill._engine.no_output`."""

from __future__ import annotations

import pathlib
from typing import Any

import torch.utils.data
from torch.utils.data import BatchSampler

from gristmill._base.user_lines import warn_user

# The folder of torch's loader, which calls `iter` for the user.
_TORCH = str(pathlib.Path(torch.utils.data.__file__).parent) + "/"


def warn_of_no_output(index_sampler: Any) -> None:
    """Warn if torch's batch sampler drops its only batch.

    Does not warn for an empty dataset, which may be intended, or for a user's own
    sampler, whose length may be a guess.
    """
    if type(index_sampler) is not BatchSampler or not index_sampler.drop_last:
        return
    sampler: Any = index_sampler.sampler
    if not type(sampler).__module__.startswith(("torch.utils.data.", "gristmill.")):
        return
    try:
        samples = len(sampler)
    except Exception:
        return  # Iterating raises the error again.
    if 0 < samples < index_sampler.batch_size:
        warn_user(
            f"This loader gives no batch. It has {samples} samples,"
            f" batch_size={index_sampler.batch_size} and drop_last=True. Pass a smaller"
            " batch_size, or drop_last=False.",
            also_skipped=_TORCH,
        )
