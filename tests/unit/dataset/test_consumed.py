"""`consumed` counts what a loop over the delivered elements counts."""

import collections

import hypothesis
import numpy as np
from hypothesis import strategies as st

import gristmill as grain

Iter = grain.experimental
SIZES = (13, 9, 17)


class Documents:
    """Serves documents of tokens; each token is the number of its document."""

    def __init__(self, number, size):
        self.number = number
        self.name = f"source {number}"
        rng = np.random.default_rng(number)
        self._lengths = rng.integers(1, 9, size)

    def __len__(self):
        return len(self._lengths)

    def __getitem__(self, index):
        return np.full(self._lengths[index], 100 * self.number + index + 1)

    def lengths(self):
        return self._lengths


SOURCES = [Documents(number, size) for number, size in enumerate(SIZES)]


def documents(number=0):
    return grain.MapDataset.source(SOURCES[number])


def features(tokens):
    return {"t": tokens}


def is_kept(element):
    return int(element["t"][0]) % 3 != 0


def bucket_length(element):
    return element["t"].size


class Expected:
    """Counts the tokens of rows and elements in the order of their delivery."""

    def __init__(self):
        self.elements = collections.Counter()
        self.tokens = collections.Counter()
        # The tokens of the last document that are still to come.
        self._rest = (0, 0)

    def add(self, output):
        """Count an element, or a batch of elements or rows, with cells of 0."""
        for row in output if isinstance(output, list) else [output]:
            tokens = row["t"]
            for cells in [tokens] if tokens.ndim == 1 else tokens:
                self._add_cells(cells[cells > 0].tolist())

    def _add_cells(self, cells):
        place = 0
        while place < len(cells):
            number, key = divmod(cells[place] - 1, 100)
            document, rest = self._rest
            if not (rest and document == cells[place]):
                rest = SOURCES[number].lengths()[key]
                self.elements[number] += 1
            count = min(rest, len(cells) - place)
            assert set(cells[place : place + count]) == {cells[place]}
            self.tokens[number] += count
            self._rest = cells[place], rest - count
            place += count


def check(counts, expected, numbers):
    for number in numbers:
        count = counts[f"source {number}"]
        assert count.elements == expected.elements[number]
        assert count.tokens == expected.tokens[number]
        assert count.epochs == expected.elements[number] / SIZES[number]


@st.composite
def map_chains(draw):
    """Draw a chain of a `MapDataset`, and the numbers of its sources."""

    def part(number):
        ds = documents(number)
        for step in draw(st.lists(st.sampled_from(MAP_STEPS), max_size=2)):
            ds = step(ds)
        return ds

    numbers = draw(st.sets(st.integers(0, 2), min_size=1))
    numbers = sorted(numbers)
    parts = [part(number) for number in numbers]
    if len(parts) == 1:
        ds = parts[0]
    else:
        ds = draw(st.sampled_from(JOINTS))(parts, draw(WEIGHTS[len(parts)]))
    ds = draw(st.sampled_from(MAP_STEPS))(ds)
    return ds, numbers


MAP_STEPS = (
    lambda ds: ds.shuffle(3),
    lambda ds: ds.repeat(2),
    lambda ds: ds.shuffle(1).repeat(3),
    lambda ds: ds.repeat(2, reseed_each_epoch=False),
    lambda ds: ds[1:],
    lambda ds: ds.shuffle(2)[1::2],
    lambda ds: ds[[4, 2, 0, 1]],
    lambda ds: ds.shard(grain.ShardOptions(1, 2), "wrap"),
    lambda ds: Iter.WindowShuffleMapDataset(ds, window_size=3, seed=1),
    lambda ds: ds.seed(3),
)
JOINTS = (
    grain.MapDataset.mix,
    lambda parts, weights: grain.MapDataset.concatenate(parts),
    lambda parts, weights: grain.MapDataset.mix(parts, weights, unit="tokens"),
    lambda parts, weights: grain.MapDataset.mix(
        parts, weights, unit="tokens", at_end="drop"
    ),
)
WEIGHTS = {
    count: st.lists(st.sampled_from([1, 2, 0.5, 3]), min_size=count, max_size=count)
    for count in (2, 3)
}


def batch(size, drop=False):
    return lambda ds: ds.batch(size, drop_remainder=drop, batch_fn=list)


def packed(kind, **arguments):
    return lambda ds: kind(ds, length_struct={"t": 9}, **arguments)


ITER_STEPS = {
    "map": lambda ds: ds.map(lambda element: element),
    "map with index": lambda ds: ds.map_with_index(lambda index, element: element),
    "block": lambda ds: ds.block_map(lambda elements: elements, 3),
    "filter": lambda ds: ds.filter(is_kept),
    "limit": lambda ds: Iter.LimitIterDataset(ds, 7),
    "window": lambda ds: Iter.WindowShuffleIterDataset(ds, window_size=4, seed=2),
    "repeat": lambda ds: Iter.RepeatIterDataset(ds, 2),
    "cache": lambda ds: Iter.RepeatIterDataset(Iter.CacheIterDataset(ds), 2),
    "prefetch": lambda ds: Iter.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2),
}
GROUPS = {
    "none": lambda ds: ds,
    "batch": batch(3),
    "batch, drop": batch(4, True),
    "first fit": packed(Iter.FirstFitPackIterDataset, num_packing_bins=2),
    "best fit": packed(Iter.BestFitPackIterDataset, num_packing_bins=3, seed=1),
    "split": packed(Iter.ConcatThenSplitIterDataset),
    "split, whole rows": packed(
        Iter.ConcatThenSplitIterDataset, split_full_length_features=False
    ),
    "batched rows": lambda ds: batch(2, True)(
        packed(Iter.FirstFitPackIterDataset, num_packing_bins=2)(ds)
    ),
    "batched parts": lambda ds: packed(Iter.ConcatThenSplitIterDataset)(ds).batch(2),
    "rebatched": lambda ds: Iter.RebatchIterDataset(
        packed(Iter.FirstFitPackIterDataset, num_packing_bins=2)(ds).batch(3), 2
    ),
    "buckets": lambda ds: ds.bucket_by_sequence_length(
        bucket_length, [4, 7], [2, 3, 2], batch_fn=list
    ),
    "buckets, drop": lambda ds: ds.bucket_by_sequence_length(
        bucket_length, [4], [3, 2], batch_fn=list, drop_remainder=True
    ),
}


BY_TOKENS = {"unit": "tokens", "tokens": "t", "at_end": "drop"}


@st.composite
def chains(draw):
    """Draw a chain of an `IterDataset`, and the numbers of its sources."""

    def part(ds):
        return ds.map(features).to_iter_dataset()

    if draw(st.booleans()):
        ds, numbers = draw(map_chains())
        ds = ds.map(features)
        if draw(st.booleans()):
            ds = ds.filter(is_kept)
        ds = ds.to_iter_dataset()
    else:
        drawn = draw(st.lists(map_chains(), min_size=1, max_size=3))
        numbers = sorted({number for _, each in drawn for number in each})
        parts = [part(each) for each, _ in drawn]
        joined = draw(st.sampled_from(["mix", "mix by tokens", "interleave"]))
        if joined == "mix":
            ds = grain.IterDataset.mix(parts, [1, 2, 3][: len(parts)])
        elif joined == "mix by tokens":
            ds = grain.IterDataset.mix(parts, [1, 2, 3][: len(parts)], **BY_TOKENS)
        else:
            ds = Iter.InterleaveIterDataset(parts, cycle_length=2)
    names = st.sampled_from(sorted(ITER_STEPS))
    for name in draw(st.lists(names, max_size=2)):
        ds = ITER_STEPS[name](ds)
    return GROUPS[draw(st.sampled_from(sorted(GROUPS)))](ds), numbers


@hypothesis.settings(max_examples=800)
@hypothesis.given(chains(), st.lists(st.integers(0, 40), min_size=1, max_size=3))
def test_counts_are_those_of_a_loop_over_elements(chain, stops):
    ds, numbers = chain
    iterator = iter(ds)
    expected = Expected()
    delivered = 0
    for stop in sorted(stops):
        for output in iterator:
            expected.add(output)
            delivered += 1
            if delivered >= stop:
                break
        check(iterator.consumed(), expected, numbers)
        check(ds.consumed(iterator.get_state()), expected, numbers)
