"""Elements to pack, and a comparison of packed rows with Grain."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gristmill
from support.elements import same

DTYPES = ("i4", "i8", "u2", "f4", "?", ">i2", "c8", "S3", "U2", "O")


def uniform(rng: np.random.Generator, count: int, longest: int) -> Any:
    return rng.integers(1, longest + 1, count)


def log_normal(rng: np.random.Generator, count: int, longest: int) -> Any:
    return np.clip(rng.lognormal(np.log(longest / 6), 0.8, count), 1, longest)


def bimodal(rng: np.random.Generator, count: int, longest: int) -> Any:
    short = rng.normal(longest / 10, longest / 30, count)
    long = rng.normal(longest * 0.8, longest / 10, count)
    return np.clip(np.where(rng.random(count) < 0.7, short, long), 1, longest)


DISTRIBUTIONS = (uniform, log_normal, bimodal)


def tokens(distribution: Any, count: int, longest: int, seed: int = 0) -> list[Any]:
    """Return `count` arrays of tokens whose lengths follow a distribution."""
    rng = np.random.default_rng(seed)
    lengths = distribution(rng, count, longest).astype(int)
    return [rng.integers(1, 1000, length) for length in lengths]


def leaf(draw: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    seed = draw(st.integers(0, 1 << 16))
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


@st.composite
def features(draw: Any, most: int, scalars: bool = True) -> dict[str, Any]:
    """Draw a length, a dtype and a trailing shape for up to `most` features."""
    made = {}
    for name in draw(st.permutations("dabc"))[: draw(st.integers(1, most))]:
        kinds = ["array", "array", "array"] + ["scalar"] * scalars
        made[name] = {
            "length": draw(st.integers(1, 9)),
            "dtype": draw(st.sampled_from(DTYPES)),
            "shape": draw(st.sampled_from([(), (), (2,), (2, 1)])),
            "kind": draw(st.sampled_from(kinds)),
        }
    return made


def element(draw: Any, made: dict[str, Any], longest: Callable[[int], int]) -> Any:
    """Draw an element; `longest` maps a feature's length to its maximum."""
    out = {}
    for name, feature in made.items():
        if feature["kind"] == "scalar":
            out[name] = leaf(draw, feature["dtype"], ())[()]
            if draw(st.booleans()):
                out[name] = draw(st.integers(0, 9))
            continue
        length = draw(st.integers(0, longest(feature["length"])))
        dtype = feature["dtype"]
        if dtype in ("i4", "i8", "u2", "f4") and not draw(st.integers(0, 9)):
            dtype = "f8"
        out[name] = leaf(draw, dtype, (length, *feature["shape"]))
        if length > 1 and not draw(st.integers(0, 9)):
            out[name] = np.repeat(out[name], 2, axis=0)[::2]
    return out


def plain(grain: Any, elements: list[Any]) -> Any:
    """Return a dataset of the elements, unchanged."""
    source = grain.MapDataset.source(elements)
    return source.to_iter_dataset(grain.ReadOptions(0, 0))


def iterate(
    grain: Any, elements: list[Any], name: str, options: Any, parent: Any = plain
) -> Any:
    """Return an iterator over elements packed by the dataset class of a name.

    Names of BOS handling are converted to the library's constants.
    """
    if "bos_handling" in options:
        handling = grain.experimental.BOSHandling[options["bos_handling"]]
        options = {**options, "bos_handling": handling}
    dataset = getattr(grain.experimental, name)
    return iter(dataset(parent(grain, elements), **options))


def run(iterator: Any) -> tuple[list[Any], list[Any]]:
    """Return all rows, and the states before each and after the last."""
    rows, states = [], [copy.deepcopy(iterator.get_state())]
    for row in iterator:
        rows.append(row)
        states.append(copy.deepcopy(iterator.get_state()))
    return rows, states


def assert_equal_to_grain(
    grain: Any,
    elements: list[Any],
    name: str,
    options: Any,
    restored: Any,
    parent: Any = plain,
) -> None:
    """Compare rows and states, and restore some states in the other library.

    Args:
        grain: The real Grain.
        elements: The elements to pack.
        name: The name of the dataset class.
        options: Arguments of the dataset class.
        restored: Maps the number of states to the positions of states to restore.
        parent: Function that makes a dataset of the elements.
    """
    rows, states = run(iterate(gristmill, elements, name, options, parent))
    their_rows, their_states = run(iterate(grain, elements, name, options, parent))
    assert same(rows, their_rows), (rows, their_rows)
    assert same(states, their_states), (states, their_states)
    for at in restored(len(states)):
        for state in (states[at], json.loads(json.dumps(states[at]))):
            ours = iterate(gristmill, elements, name, options, parent)
            ours.set_state(state)
            assert same(ours.get_state(), states[at])
            again, states_again = run(ours)
            assert same(again, rows[at:])
            assert same(states_again, states[at:])
        theirs = iterate(grain, elements, name, options, parent)
        theirs.set_state(copy.deepcopy(states[at]))
        assert same(run(theirs)[0], rows[at:])
