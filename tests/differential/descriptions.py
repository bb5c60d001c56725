"""Makes descriptions of DataLoader pipelines that both libraries must agree on.

``describe`` draws every decision from a Choices object, so one set of rules
serves the goldens (random.Random, reproducible) and hypothesis (shrinkable).
The rules exclude intended differences of Gristmill: a sampler length that the loader's
shards do not divide, a RandomMap after a FlatMap, and MapWithIndex in a DataLoader.
They also exclude pipelines that Grain itself runs differently with and without workers:
batches of mixed dtypes and arrays in foreign byte order.
"""

import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from differential.pipelines import (
    INDICES,
    MAPS,
    RANDOM_MAPS,
    USER_OPERATIONS,
    Description,
)
from differential.strange import CONTAINERS, VALUES, VALUES_WITHOUT_WORKERS

T = TypeVar("T")

MOST_RECORDS = 60
MOST_EPOCHS = 3
TAKEN_OF_ENDLESS = 40


class Choices(Protocol):
    """Makes decisions one integer at a time."""

    def integer(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""


class Seeded:
    """Makes choices from a seed; the same seed always gives the same description."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        # Python guarantees a stable stream only for random().
        return low + int(self._random.random() * (high - low + 1))


class Drawn:
    """Makes choices by hypothesis, which can shrink a failure."""

    def __init__(self, draw: Any):
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


def _pick(choices: Choices, options: Sequence[T]) -> T:
    return options[choices.integer(0, len(options) - 1)]


def _source(choices: Choices) -> Description:
    kind = _pick(choices, ["range", "list", "tuple", "rows", "rows", "records"])
    size = choices.integer(1, MOST_RECORDS)
    source: Description = {"kind": kind, "size": size}
    if kind == "range":
        source["start"] = choices.integer(-5, 5)
        source["step"] = choices.integer(1, 4)
    if kind == "rows":
        source["shape"] = _pick(choices, [[], [3], [2, 2], [5, 1]])
        small = ["<i4", "<f4", "<f8"]
        source["dtype"] = _pick(choices, [*small, "|u1"] if source["shape"] else small)
    return source


def _shards(choices: Choices, most: int) -> list[Any]:
    count = choices.integer(1, max(1, min(most, 4)))
    return [choices.integer(0, count - 1), count, bool(choices.integer(0, 1))]


def _seed(choices: Choices) -> int:
    return _pick(choices, [0, 1, 42, 2**32 - 1, choices.integer(0, 2**31)])


def sampler_length(sampler: Description) -> int | None:
    """Return len(sampler) as Grain defines it, or None if it is endless."""
    if sampler["kind"] == "table":
        return len(sampler["keys"])
    shards = [0, 1, False] if sampler["shards"] == "none" else sampler["shards"]
    _, count, drop = shards
    records = sampler["num_records"]
    if sampler["kind"] == "sequential":
        return records // count * count if drop else records
    if sampler["num_epochs"] is None:
        return None
    epochs = sampler["num_epochs"]
    return epochs * (records // count * count if drop else records)


def _sampler(choices: Choices, size: int, endless: bool) -> Description:
    kind = _pick(choices, ["index"] * 5 + ["sequential", "table"])
    seed = _seed(choices) if choices.integer(0, 3) else None
    if kind == "table":
        count = choices.integer(1, size)
        keys = [choices.integer(0, 2 * size) for _ in range(count)]
        sized = bool(choices.integer(0, 1))
        return {"kind": kind, "keys": keys, "seed": seed, "sized": sized}
    # Fewer or more records than in the source are both allowed.
    records = size if choices.integer(0, 4) else choices.integer(1, MOST_RECORDS)
    shards = _shards(choices, records) if choices.integer(0, 1) else "none"
    sampler = {"kind": kind, "num_records": records, "shards": shards, "seed": seed}
    if kind == "index":
        sampler["shuffle"] = seed is not None and bool(choices.integer(0, 3))
        sampler["num_epochs"] = None if endless else choices.integer(1, MOST_EPOCHS)
    return sampler


def _divide(sampler: Description, count: int) -> None:
    """Lengthen ``sampler`` until ``count`` shards divide its length."""
    length = sampler_length(sampler)
    if length is None or length % count == 0:
        return
    if sampler["kind"] == "table":
        sampler["keys"] += sampler["keys"][:1] * (-length % count)
    elif sampler["shards"] == "none":
        sampler["num_records"] += -sampler["num_records"] % count
    else:
        step = count * sampler["shards"][1]
        sampler["num_records"] += -sampler["num_records"] % step


class _Operations:
    """Draws operations that are valid in sequence.

    ``alike`` is true if all elements have one structure, shape and dtype, as the
    default batch requires; ``random`` is true if records still have generators.
    """

    def __init__(self, choices: Choices, flat: bool):
        self._choices = choices
        self._flat = flat
        self._alike = True
        self._random = True
        self._closed = False

    def draw(self) -> list[Description]:
        count = self._choices.integer(0, 5)
        operations: list[Description] = []
        for _ in range(count):
            if not self._closed:
                operations.append(self._one())
        return operations

    def _one(self) -> Description:
        kinds = ["map"] * 3 + ["batch"] * 3 + ["filter"] * 2 + ["user"]
        kinds += ["random_map"] * 3 if self._random else []
        kinds += ["flat_map"] * 3 if self._flat else []
        kind = _pick(self._choices, kinds)
        arg = self._choices.integer(1, 5)
        operation: Description = {
            "op": kind,
            "style": "legacy" if not self._choices.integer(0, 4) else "plain",
            "function": None,
            "arg": arg,
        }
        getattr(self, f"_{kind}")(operation)
        return operation

    def _map(self, operation: Description) -> None:
        operation["function"] = _pick(self._choices, list(MAPS))
        if operation["function"] == "maybe_none":
            self._closed = True

    def _random_map(self, operation: Description) -> None:
        operation["function"] = _pick(self._choices, list(RANDOM_MAPS))
        if operation["style"] == "plain" and not self._choices.integer(0, 4):
            operation["style"] = "tf"

    def _filter(self, operation: Description) -> None:
        operation["arg"] = max(operation["arg"], 2)

    def _flat_map(self, operation: Description) -> None:
        operation["style"] = "plain"
        operation["function"] = _pick(self._choices, ["list", "tuple", "iterator"])
        self._random = False

    def _batch(self, operation: Description) -> None:
        functions = ["list", "summary"] + ([None] * 4 if self._alike else [])
        function = _pick(self._choices, functions)
        operation["function"] = function
        operation["drop_remainder"] = bool(self._choices.integer(0, 1))
        if not operation["drop_remainder"]:
            self._alike = False

    def _user(self, operation: Description) -> None:
        operation["style"] = "plain"
        operation["function"] = _pick(self._choices, list(USER_OPERATIONS))


def describe(choices: Choices, workers: Sequence[int]) -> Description:
    """Return a description of a valid pipeline, as plain JSON."""
    source = _source(choices)
    endless = source["size"] >= 20 and not choices.integer(0, 5)
    sampler = _sampler(choices, source["size"], endless)
    shards = None
    if sampler["kind"] == "table" or not choices.integer(0, 3):
        shards = _shards(choices, 4) if choices.integer(0, 2) else "none"
    effective = sampler.get("shards") if shards is None else shards
    if effective != "none":
        _divide(sampler, effective[1])
    operations = _Operations(choices, flat=not choices.integer(0, 5)).draw()
    return {
        "source": source,
        "sampler": sampler,
        "operations": operations,
        "loader": {
            "shards": shards,
            "workers": _pick(choices, workers),
            "buffer": choices.integer(1, 3),
            "read": _pick(choices, [None, None, [0, 0], [1, 1], [4, 16]]),
        },
        "take": None if sampler_length(sampler) else TAKEN_OF_ENDLESS,
    }


def has_flat_map(description: Description) -> bool:
    """Return whether states are native Dataset states, not the DataLoader's."""
    return any(op["op"] == "flat_map" for op in description["operations"])


def looks_ahead(description: Description) -> bool:
    """Return whether an operation holds back records that no state contains."""
    return any(op["function"] == "window" for op in description["operations"])


def describe_strange(choices: Choices, workers: Sequence[int]) -> Description:
    """Return a description with unusual elements, keys and indices."""
    description = describe(choices, workers)
    values = VALUES if description["loader"]["workers"] else VALUES_WITHOUT_WORKERS
    description["source"] = {
        "kind": "strange",
        "size": description["source"]["size"],
        "values": [_pick(choices, list(values)) for _ in range(2)],
        "container": _pick(choices, list(CONTAINERS)),
        "sized": bool(choices.integer(0, 3)),
    }
    if description["sampler"]["kind"] == "table":
        description["sampler"]["index"] = _pick(choices, list(INDICES))
        if choices.integer(0, 1):
            description["sampler"]["numpy"] = True
    return description


@st.composite
def strange_descriptions(draw: Any, workers: Sequence[int] = (0,)) -> Description:
    """Draw from ``describe_strange``."""
    return describe_strange(Drawn(draw), workers)


@st.composite
def descriptions(draw: Any, workers: Sequence[int] = (0,)) -> Description:
    """Draw valid descriptions with one of these worker counts."""
    return describe(Drawn(draw), workers)
