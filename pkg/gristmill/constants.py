"""Names of the features that describe a record, in addition to its data."""

from __future__ import annotations

from typing import Final

from gristmill._base.lazy_names import public_names

__all__ = [
    "DATASET_INDEX",
    "EPOCH",
    "INDEX",
    "META_FEATURES",
    "RECORD",
    "RECORD_KEY",
    "SEED",
]

DATASET_INDEX: Final = "_dataset_index"
"""The number of the data set that a record comes from, from 0."""

EPOCH: Final = "_epoch"
"""The number of the pass over the data, from 0."""

INDEX: Final = "_index"
"""The record's position in the order of reading, from 0."""

RECORD: Final = "_record"
"""The record's data, as the source returned them."""

RECORD_KEY: Final = "_record_key"
"""The record's number in its source, from 0."""

SEED: Final = "_seed"
"""The seed of the random numbers that transforms draw for the record."""

META_FEATURES: Final = frozenset(
    {DATASET_INDEX, EPOCH, INDEX, RECORD, RECORD_KEY, SEED}
)
"""The set of all names above."""


def __dir__() -> list[str]:
    return public_names(__all__)
