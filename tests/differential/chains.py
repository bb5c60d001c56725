"""Makes chains of datasets, and builds one chain in both libraries.

A chain is a description made of JSON types. ``describe`` draws one from a Choices
object, and ``build`` makes it with `grain` or `gristmill`, whose names are the same.
Functions are stored by name, so that a failing chain can be read and saved.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from differential.descriptions import Choices, _pick

Chain = dict[str, Any]
MOST_ELEMENTS = 40


def bump(x):
    if isinstance(x, dict):
        return {key: bump(value) for key, value in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x)(bump(value) for value in x)
    return x + 1


def wrap(x):
    return {"x": x, "y": np.float32(2.5)}


def pair(x):
    return (x, np.arange(3, dtype=np.int16))


def total(x) -> int:
    if isinstance(x, dict):
        return sum(total(value) for value in x.values())
    if isinstance(x, (tuple, list)):
        return sum(total(value) for value in x)
    return int(np.sum(x))


def index_in(i, x):
    return {"i": i, "x": x}


def tokens(x):
    """Return a dict of sequences of different lengths, as input for packing."""
    count = total(x)
    return {
        "t": np.arange(count % 7 + 1, dtype=np.int32) + 1,
        "u": np.full(count % 3 + 1, 0.5, np.float32),
    }


def add_index(i, x):
    return (x, 10 * i)


def draw_integer(x, rng):
    return {"x": x, "r": rng.integers(0, 1000)}


def draw_normal(x, rng):
    return (x, rng.normal(size=2).astype(np.float32), rng.integers(0, 7))


def keep_most(x) -> bool:
    return total(x) % 5 != 0


def keep_some(x) -> bool:
    return total(x) % 3 == 1


def keep_few(x):
    return np.bool_(total(x) % 7 == 2)


FUNCTIONS = {
    function.__name__: function
    for function in (
        bump,
        wrap,
        pair,
        tokens,
        index_in,
        add_index,
        draw_integer,
        draw_normal,
        keep_most,
        keep_some,
        keep_few,
    )
}
MAPS = ["bump", "wrap", "pair"]
MAPS_WITH_INDEX = ["index_in", "add_index"]
RANDOM_MAPS = ["draw_integer", "draw_normal"]
FILTERS = ["keep_most", "keep_some", "keep_few"]


class Stopping:
    """A source of numbers that stops before its length."""

    def __init__(self, size: int, stop: int):
        self._size = size
        self._stop = stop

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        if index >= self._stop:
            raise StopIteration
        return index


def _source(choices: Choices, extras: Sequence[str]) -> Chain:
    if "stopping" in extras:
        size = choices.integer(1, MOST_ELEMENTS)
        return {"op": "stopping", "size": size, "stop": choices.integer(0, size)}
    kind = _pick(choices, ["range", "range", "list", "rows"])
    if kind == "range":
        start, step = choices.integer(-5, 5), _pick(choices, [1, 1, 2, 3, -1])
        stop = start + step * choices.integer(1, MOST_ELEMENTS)
        return {"op": "range", "args": [start, stop, step]}
    return {"op": kind, "size": choices.integer(1, MOST_ELEMENTS)}


def _slice(choices: Choices) -> list[Any]:
    ends = [None, choices.integer(-8, 30), choices.integer(-8, 30)]
    return [
        _pick(choices, ends),
        _pick(choices, ends),
        _pick(choices, [None, 1, 2, -1]),
    ]


def _seed(choices: Choices) -> int:
    return _pick(choices, [0, 1, 42, 2**32 - 1])


def _map_chain(
    choices: Choices, depth: int, extras: Sequence[str]
) -> tuple[Chain, bool]:
    """Describe a chain of indexed datasets; also return if elements may be absent.

    With "view" in `extras`, finite views of endless datasets are allowed. With
    "stopping", sources raise StopIteration at some index.
    """
    chain, sparse = _source(choices, extras), False
    kinds = [*_MAP_OPS, "view", "view"] if "view" in extras else _MAP_OPS
    if "stopping" in extras:
        # Grain's `zip` uses a generator, which turns StopIteration into RuntimeError.
        kinds = [kind for kind in kinds if kind != "zip"]
    for _ in range(choices.integer(0, depth)):
        kind = _pick(choices, kinds)
        if kind == "batch" and sparse:
            continue
        if kind == "view":
            chain = view_of_endless(choices, chain, sparse)
            continue
        if kind == "parts":
            parts = [
                _map_chain(choices, depth // 2, extras)
                for _ in range(choices.integer(0, 2))
            ]
            sparse = sparse or any(part_sparse for _, part_sparse in parts)
            chain = _joined(choices, [chain, *(part for part, _ in parts)])
            continue
        sparse = sparse or kind in ("filter", "flat_map")
        chain = {"op": kind, "parent": chain, **_arguments(choices, kind)}
    return chain, sparse


_MAP_OPS = [
    "map",
    "map_with_index",
    "random_map",
    "filter",
    "shuffle",
    "shuffle",
    "slice",
    "repeat",
    "batch",
    "seed",
    "flat_map",
    "zip",
    "window_shuffle",
    "parts",
]
_ONE_TO_ONE = ["map", "map_with_index", "random_map", "seed", "shuffle", "zip"]
_ITER_OPS = [
    "map",
    "map_with_index",
    "random_map",
    "filter",
    "batch",
    "seed",
    "flat_map",
    "zip",
    "window_shuffle",
    "limit",
    "rebatch",
    "repeat_epochs",
    "cache",
    "thread_prefetch",
    "first_fit",
    "best_fit",
    "concat_then_split",
]
# Nodes that treat None like any other element.
_BLIND_OPS = ["map", "map_with_index", "random_map", "seed"]


def view_of_endless(choices: Choices, chain: Chain, sparse: bool) -> Chain:
    """Describe a slice of an endlessly repeated chain, repeated several times."""
    chain = {"op": "repeat", "parent": chain, "epochs": None, "reseed": _bit(choices)}
    kinds = _ONE_TO_ONE if sparse else [*_ONE_TO_ONE, "batch"]
    for _ in range(choices.integer(0, 2)):
        kind = _pick(choices, kinds)
        chain = {"op": kind, "parent": chain, **_arguments(choices, kind)}
    first, step = choices.integer(0, 9), _pick(choices, [1, 1, 2, -1])
    count = choices.integer(1, 9)
    ends = [first, first + count] if step > 0 else [first + count, first]
    if _bit(choices):
        ends = [end - 20 for end in ends]  # Count from the end.
    chain = {"op": "slice", "parent": chain, "args": [*ends, step]}
    for _ in range(choices.integer(0, 2)):
        kind = _pick(choices, kinds)
        chain = {"op": kind, "parent": chain, **_arguments(choices, kind)}
    return {"op": "repeat", "parent": chain, **_arguments(choices, "repeat")}


def _joined(choices: Choices, parts: list[Chain]) -> Chain:
    kind = _pick(choices, ["mix", "concatenate", "select"])
    chain: Chain = {"op": kind, "parents": parts}
    if kind == "mix":
        weights = [choices.integer(1, 9) / 2 for _ in parts]
        chain["weights"] = _pick(choices, [None, weights])
    return chain


def _bit(choices: Choices) -> bool:
    return bool(choices.integer(0, 1))


def _bins(choices: Choices) -> Chain:
    shuffled = _bit(choices)
    return {"bins": choices.integer(1, 4), "shuffle": shuffled}


def _count(choices: Choices) -> Chain:
    return {"count": choices.integer(1, 9)}


# Draws the arguments of each kind of node that has any.
_DRAWN: dict[str, Callable[[Choices], Chain]] = {
    "map": lambda c: {"f": _pick(c, MAPS)},
    "map_with_index": lambda c: {"f": _pick(c, MAPS_WITH_INDEX)},
    "random_map": lambda c: {
        "f": _pick(c, RANDOM_MAPS),
        "seed": _pick(c, [None, 3, 2**40]),
    },
    "filter": lambda c: {"f": _pick(c, FILTERS)},
    "slice": lambda c: {"args": _slice(c)},
    "repeat": lambda c: {"epochs": c.integer(1, 3), "reseed": _bit(c)},
    "batch": lambda c: {"size": c.integer(1, 5), "drop": _bit(c)},
    "seed": lambda c: {"seed": _seed(c)},
    "shuffle": lambda c: {"seed": _pick(c, [None, _seed(c)])},
    "flat_map": lambda c: {"fan_out": c.integer(1, 3)},
    "window_shuffle": lambda c: {"window": c.integer(1, 9), "seed": _seed(c) // 2},
    "limit": _count,
    "rebatch": _count,
    "thread_prefetch": _count,
    "repeat_epochs": lambda c: {"epochs": c.integer(1, 3)},
    "first_fit": _bins,
    "best_fit": _bins,
}


def _arguments(choices: Choices, kind: str) -> Chain:
    draw = _DRAWN.get(kind)
    return {} if draw is None else draw(choices)


def describe_map(choices: Choices, depth: int = 8) -> Chain:
    """Describe a chain of indexed datasets."""
    return _map_chain(choices, depth, ["view"])[0]


def describe(choices: Choices, depth: int = 8, extras: Sequence[str] = ()) -> Chain:
    """Describe a chain of iterated datasets; see `_map_chain`."""
    above = choices.integer(0, depth // 2)
    chain: Chain
    if depth > 1 and choices.integer(0, 7) == 7:
        parts = [
            describe(choices, depth // 2, extras) for _ in range(choices.integer(1, 3))
        ]
        chain = {"op": "mix_iter", "parents": parts, "weights": None}
        if choices.integer(0, 1):
            chain["weights"] = [choices.integer(1, 9) for _ in parts]
            chain["names"] = bool(choices.integer(0, 1))
        elif choices.integer(0, 1):
            chain = {"op": "interleave", "parents": parts}
            chain["cycle"] = choices.integer(1, 4)
    else:
        # With threads, Grain continues after a source raised StopIteration.
        several = [None, [0, 0], [2, 3], [1, 10]]
        chain = {
            "op": "to_iter",
            "parent": _map_chain(choices, depth - above, extras)[0],
            "threads": [0, 0] if "stopping" in extras else _pick(choices, several),
            "allow_nones": choices.integer(0, 5) == 0,
        }
    for _ in range(above):
        kind = _pick(choices, _BLIND_OPS if gives_nones(chain) else _ITER_OPS)
        if kind == "repeat_epochs" and "interleave" in ops_of(chain):
            # Grain's state marks every further epoch as ended.
            continue
        chain = {"op": kind, "parent": chain, **_arguments(choices, kind)}
    return chain


def ops_of(chain: Chain) -> set[str]:
    """Return the kinds of all nodes of a chain."""
    parents = chain.get("parents") or [chain[k] for k in ("parent",) if k in chain]
    return {chain["op"]}.union(*map(ops_of, parents))


def gives_nones(chain: Chain) -> bool:
    """Return whether an iterated chain may yield None."""
    if chain["op"] == "to_iter":
        return chain["allow_nones"]
    parents = chain.get("parents") or [chain["parent"]]
    return any(gives_nones(parent) for parent in parents)


def build(lib: Any, chain: Chain) -> Any:
    """Build a chain with one library's datasets."""
    make = _BUILDERS.get(chain["op"])
    if make is not None:
        return make(lib, chain)
    parent = build(lib, chain["parent"])
    if chain["op"] in _EXPERIMENTAL:
        return _EXPERIMENTAL[chain["op"]](lib.experimental, parent, chain)
    kind = chain["op"]
    if kind in ("map", "map_with_index", "filter"):
        return getattr(parent, kind)(FUNCTIONS[chain["f"]])
    if kind == "random_map":
        return parent.random_map(FUNCTIONS[chain["f"]], seed=chain["seed"])
    if kind == "slice":
        return parent.slice(slice(*chain["args"]))
    if kind == "repeat":
        return parent.repeat(chain["epochs"], reseed_each_epoch=chain["reseed"])
    if kind == "batch":
        return parent.batch(chain["size"], drop_remainder=chain["drop"])
    if kind == "seed":
        return parent.seed(chain["seed"])
    return parent.shuffle(chain["seed"])


def _rows(size: int) -> np.ndarray:
    return np.arange(size * 2, dtype=np.float32).reshape(size, 2)


def _to_iter(lib: Any, chain: Chain) -> Any:
    options = chain["threads"] and lib.ReadOptions(*chain["threads"])
    parent = build(lib, chain["parent"])
    return parent.to_iter_dataset(options, allow_nones=chain["allow_nones"])


def _select(lib: Any, chain: Chain) -> Any:
    parents = [build(lib, parent) for parent in chain["parents"]]

    class Backwards(lib.transforms.DatasetSelectionMap):
        def __len__(self):
            return 2 * len(parents)

        def __getitem__(self, i):
            return (-i) % len(parents), i

    return lib.MapDataset.select_from_datasets(parents, Backwards())


def _mix_iter(lib: Any, chain: Chain) -> Any:
    parents: Any = [build(lib, parent) for parent in chain["parents"]]
    weights: Any = chain["weights"]
    if chain.get("names"):
        # Not in alphabetical order.
        names = [f"part {9 - i}" for i in range(len(parents))]
        parents = dict(zip(names, parents, strict=True))
        weights = weights and dict(zip(names, weights, strict=True))
    return lib.IterDataset.mix(parents, weights)


def _flat_map(lib: Any, chain: Chain) -> Any:
    class Split(lib.experimental.FlatMapTransform):
        max_fan_out = chain["fan_out"]

        def flat_map(self, element):
            return [element] * (total(element) % (chain["fan_out"] + 1))

    return build(lib, chain["parent"]).apply(Split())


def _interleave(lib: Any, chain: Chain) -> Any:
    parents = [build(lib, parent) for parent in chain["parents"]]
    return lib.experimental.InterleaveIterDataset(parents, cycle_length=chain["cycle"])


def _zip(names: Any, parent: Any, chain: Chain) -> Any:
    both = [parent, parent.map(bump)]
    indexed = hasattr(parent, "to_iter_dataset")
    return (names.ZipMapDataset if indexed else names.ZipIterDataset)(both)


def _window_shuffle(names: Any, parent: Any, chain: Chain) -> Any:
    if not hasattr(parent, "to_iter_dataset"):
        return names.WindowShuffleIterDataset(
            parent, window_size=chain["window"], seed=chain["seed"]
        )
    # In Grain, a window that does not divide the length gives no permutation.
    window = math.gcd(len(parent), chain["window"]) or 1
    return names.WindowShuffleMapDataset(parent, window_size=window, seed=chain["seed"])


def _pack(name: str) -> Any:
    def make(names: Any, parent: Any, chain: Chain) -> Any:
        return getattr(names, name)(
            parent.map(tokens),
            length_struct={"t": 8, "u": 6},
            num_packing_bins=chain["bins"],
            shuffle_bins=chain["shuffle"],
            meta_features=(),
        )

    return make


_EXPERIMENTAL = {
    "zip": _zip,
    "window_shuffle": _window_shuffle,
    "limit": lambda names, parent, c: names.LimitIterDataset(parent, c["count"]),
    "rebatch": lambda names, parent, c: names.RebatchIterDataset(
        parent.batch(3), c["count"]
    ),
    "repeat_epochs": lambda names, parent, c: names.RepeatIterDataset(
        parent, c["epochs"]
    ),
    "cache": lambda names, parent, c: names.CacheIterDataset(parent),
    "thread_prefetch": lambda names, parent, c: names.ThreadPrefetchIterDataset(
        parent, prefetch_buffer_size=c["count"]
    ),
    "first_fit": _pack("FirstFitPackIterDataset"),
    "best_fit": _pack("BestFitPackIterDataset"),
    "concat_then_split": lambda names, parent, c: names.ConcatThenSplitIterDataset(
        parent.map(tokens), length_struct={"t": 8, "u": 6}
    ),
}


def _of_parents(name: str) -> Any:
    def make(lib: Any, chain: Chain) -> Any:
        parents = [build(lib, parent) for parent in chain["parents"]]
        more = [chain["weights"]] if "weights" in chain else []
        return getattr(lib.MapDataset, name)(parents, *more)

    return make


_BUILDERS = {
    "range": lambda lib, chain: lib.MapDataset.range(*chain["args"]),
    "list": lambda lib, chain: lib.MapDataset.source(list(range(chain["size"]))),
    "rows": lambda lib, chain: lib.MapDataset.source(_rows(chain["size"])),
    "stopping": lambda lib, chain: lib.MapDataset.source(
        Stopping(chain["size"], chain["stop"])
    ),
    "mix": _of_parents("mix"),
    "concatenate": _of_parents("concatenate"),
    "select": _select,
    "to_iter": _to_iter,
    "mix_iter": _mix_iter,
    "flat_map": _flat_map,
    "interleave": _interleave,
}
