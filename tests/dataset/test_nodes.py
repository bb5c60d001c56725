"""Random chains of the experimental nodes give what they give in Grain."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dataset.twins import assert_twins
from differential.chains import FUNCTIONS

SEEDS = [0, 1, 2**31]
OPS = [
    "map",
    "filter",
    "limit",
    "repeat",
    "cache",
    "window_shuffle",
    "thread_prefetch",
    "rebatch",
    "random_map",
    "map_with_index",
]


@st.composite
def sources(draw):
    size = draw(st.integers(1, 12))
    kind = draw(st.sampled_from(["range", "shuffle", "zip", "window"]))
    return {
        "op": kind,
        "size": size,
        "window": draw(st.sampled_from([w for w in range(1, 13) if size % w == 0])),
        "threads": draw(st.sampled_from([(0, 0), (2, 3)])),
    }


@st.composite
def chains(draw, depth: int = 4):
    joined = draw(st.integers(0, 4)) if depth > 1 else 4
    if joined < 2:
        parts = draw(st.lists(chains(depth=1), min_size=1, max_size=4))
        kind = "interleave" if joined else "zip_iter"
        chain = {"op": kind, "parts": parts, "cycle": draw(st.integers(1, 5))}
    else:
        chain = draw(sources())
    for _ in range(draw(st.integers(0, depth))):
        chain = {
            "op": draw(st.sampled_from(OPS)),
            "parent": chain,
            "n": draw(st.integers(1, 5)),
            "seed": draw(st.sampled_from(SEEDS)),
        }
        if chain["op"] == "repeat" and "interleave" in str(chain["parent"]):
            # States of Grain's second epoch lose elements.
            chain["op"] = "limit"
    return chain


def build(lib: Any, chain: dict[str, Any]) -> Any:
    experimental = lib.experimental
    if chain["op"] == "interleave":
        return experimental.InterleaveIterDataset(
            [build(lib, part) for part in chain["parts"]], cycle_length=chain["cycle"]
        )
    if chain["op"] == "zip_iter":
        return experimental.ZipIterDataset(
            [build(lib, part) for part in chain["parts"]], strict=False
        )
    if "parent" not in chain:
        return build_source(lib, chain)
    parent, n, seed = build(lib, chain["parent"]), chain["n"], chain["seed"]
    match chain["op"]:
        case "map":
            return parent.map(FUNCTIONS["bump"])
        case "filter":
            return parent.filter(FUNCTIONS["keep_most"])
        case "limit":
            return experimental.LimitIterDataset(parent, n)
        case "repeat":
            return experimental.RepeatIterDataset(parent, n)
        case "cache":
            return experimental.CacheIterDataset(parent)
        case "window_shuffle":
            return experimental.WindowShuffleIterDataset(
                parent, window_size=n, seed=seed
            )
        case "thread_prefetch":
            return experimental.ThreadPrefetchIterDataset(
                parent, prefetch_buffer_size=n - 1
            )
        case "rebatch":
            return experimental.RebatchIterDataset(parent.batch(n), 3, n == 4)
        case "random_map":
            return parent.random_map(FUNCTIONS["draw_integer"], seed=seed)
    return parent.map_with_index(FUNCTIONS["index_in"])


def build_source(lib: Any, chain: dict[str, Any]) -> Any:
    numbers = lib.MapDataset.range(chain["size"])
    if chain["op"] == "shuffle":
        numbers = numbers.shuffle(seed=3)
    elif chain["op"] == "zip":
        numbers = lib.experimental.ZipMapDataset([numbers, numbers.shuffle(seed=3)])
    elif chain["op"] == "window":
        numbers = lib.experimental.WindowShuffleMapDataset(
            numbers, window_size=chain["window"], seed=4
        )
    return numbers.to_iter_dataset(lib.ReadOptions(*chain["threads"]))


@given(chains())
@settings(max_examples=100)
def test_random_chains_are_grains(chain):
    # Grain makes up an empty batch where a batch ended at a state.
    whole = "rebatch" not in str(chain)
    assert_twins(lambda lib: build(lib, chain), most=24, theirs_resume=whole, resumed=3)
