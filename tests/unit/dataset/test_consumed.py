"""`consumed` counts what a loop over the delivered elements counts."""

import collections
import itertools
import json

import hypothesis
import numpy as np
import pytest
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


class DocumentsWithoutLengths(Documents):
    """Serves the same documents; a mixture has to count their tokens."""

    lengths = None


SOURCES = [Documents(number, size) for number, size in enumerate(SIZES)]


def documents(number=0, kind=None):
    source = SOURCES[number] if kind is None else kind(number, SIZES[number])
    return grain.MapDataset.source(source)


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

    numbers = draw(st.sets(st.integers(0, 2), min_size=1))
    numbers = sorted(numbers)
    join = draw(st.sampled_from(sorted(JOINTS)))
    # Computing the sums of tokens of an order without a period takes long.
    steps = MAP_STEPS[:2] if "tokens" in join else MAP_STEPS
    parts = []
    for number in numbers:
        ds = documents(number)
        for step in draw(st.lists(st.sampled_from(steps), max_size=2)):
            ds = step(ds)
        parts.append(ds)
    if len(parts) > 1:
        ds = JOINTS[join](parts, draw(WEIGHTS[len(parts)]))
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
JOINTS = {
    "mix": grain.MapDataset.mix,
    "concatenate": lambda parts, weights: grain.MapDataset.concatenate(parts),
    "mix tokens": lambda parts, weights: grain.MapDataset.mix(
        parts, weights, unit="tokens"
    ),
    "mix tokens, drop": lambda parts, weights: grain.MapDataset.mix(
        parts, weights, unit="tokens", at_end="drop"
    ),
}
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


@pytest.mark.parametrize("method", ["best_fit", "split"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_planned_rows_count_their_documents(method, batch_size):
    ds = grain.MapDataset.concatenate([documents(0), documents(1)]).shuffle(1)
    lengths = [SOURCES[n].lengths() for n in (0, 1)]
    records = grain.MapDataset.concatenate(
        [grain.MapDataset.source(each) for each in lengths]
    ).shuffle(1)
    ds = ds.pack(5, [*records], method=method, num_epochs=2, seed=1)
    iterator = iter(ds.batch(batch_size))
    tokens = collections.Counter()
    for place, output in enumerate(iterator):
        cells = output["tokens"][output["tokens"] > 0]
        tokens.update(((cells - 1) // 100).tolist())
        if place % 3 == 0:
            for number in (0, 1):
                count = iterator.consumed()[f"source {number}"]
                assert count.tokens == tokens[number]
    for number in (0, 1):
        count = iterator.consumed()[f"source {number}"]
        assert count.elements == 2 * SIZES[number]
        assert count.tokens == 2 * SOURCES[number].lengths().sum()
    ids = ds.to_iter_dataset().ids({"next_index": 2})
    row = ds[2]["tokens"]
    values = 100 * ids["source"] + ids["key"] + 1
    expected = np.repeat(values, ids["end"] - ids["begin"])
    assert row[row > 0].tolist() == expected.tolist()


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


@hypothesis.settings(max_examples=50)
@hypothesis.given(chains(), st.lists(st.integers(0, 40), min_size=1, max_size=3))
def test_counts_are_those_of_a_loop_over_elements(chain, stops):
    check_at_stops(*chain, stops)


def check_at_stops(ds, numbers, stops):
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


@st.composite
def counting_chains(draw):
    """Draw a chain with a mixture of sources without lengths, and their numbers."""
    parts = []
    numbers = sorted(draw(st.sets(st.integers(0, 2), min_size=1)))
    for number in numbers:
        ds = documents(number, DocumentsWithoutLengths)
        ds = draw(st.sampled_from(MAP_STEPS))(ds).map(features).to_iter_dataset()
        for name in draw(st.lists(st.sampled_from(sorted(ITER_STEPS)), max_size=1)):
            ds = ITER_STEPS[name](ds)
        parts.append(ds)
    ds = grain.IterDataset.mix(parts, **BY_TOKENS)
    for name in draw(st.lists(st.sampled_from(sorted(ITER_STEPS)), max_size=1)):
        ds = ITER_STEPS[name](ds)
    return GROUPS[draw(st.sampled_from(sorted(GROUPS)))](ds), numbers


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    counting_chains(), st.lists(st.integers(0, 40), min_size=1, max_size=3)
)
def test_mixtures_count_tokens_of_sources_without_lengths(chain, stops):
    check_at_stops(*chain, stops)


def test_tokens_are_unknown_if_a_mixture_does_not_see_each_record():
    ds = documents(0, DocumentsWithoutLengths).to_iter_dataset()
    both = documents(1, DocumentsWithoutLengths).to_iter_dataset()
    both = grain.IterDataset.mix([both, documents(2).to_iter_dataset()])
    cases = {
        "source 0": [
            grain.IterDataset.mix([ds], at_end="drop"),
            grain.IterDataset.mix([ds.batch(1)], unit="tokens"),
            grain.experimental.ZipIterDataset(
                [grain.IterDataset.mix([ds], unit="tokens"), ds]
            ),
        ],
        "source 1": [grain.IterDataset.mix([both], unit="tokens")],
    }
    for name, datasets in cases.items():
        for each in datasets:
            iterator = iter(each)
            next(iterator)
            assert iterator.consumed()[name].tokens is None


@pytest.mark.multiprocess
@pytest.mark.parametrize("group", ["batch", "best fit", "split", "buckets"])
@pytest.mark.parametrize("keeps", [None, is_kept])
def test_counts_of_workers_go_on_after_a_restore(group, keeps):
    ds = grain.MapDataset.mix([documents(0), documents(1)], [1, 2], unit="tokens")
    ds = ds.shuffle(1).repeat(4).map(features).to_iter_dataset()
    ds = GROUPS[group](ds if keeps is None else ds.filter(keeps))
    expected = [Expected(), Expected()]  # Of each stream.
    turn = 0
    state = None
    for workers in (2, 1, 0):
        options = grain.MultiprocessingOptions(num_workers=workers)
        iterator = iter(ds.mp_prefetch(options, streams=2))
        if state is not None:
            iterator.set_state(state)
        for output in itertools.islice(iterator, 5):
            expected[turn % 2].add(output)
            turn += 1
        state = json.loads(json.dumps(iterator.get_state()))
        both = Expected()
        for each in expected:
            both.elements += each.elements
            both.tokens += each.tokens
        check(iterator.consumed(), both, [0, 1])
        iterator.close()


def test_counts_follow_an_iterator_that_goes_back():
    ds = documents().shuffle(1).repeat().map(features).to_iter_dataset()
    iterator = iter(ds.filter(is_kept).batch(2, batch_fn=list))
    counts, states = [], []
    for _ in range(6):
        next(iterator)
        states.append(iterator.get_state())
        counts.append(iterator.consumed())
    for place in (3, 0, 5, 1):
        iterator.set_state(states[place])
        assert iterator.consumed() == counts[place]


def test_ranks_add_up_to_the_data():
    counts = []
    for rank in range(2):
        ds = documents().shuffle(1)
        ds = ds.shard(grain.ShardOptions(rank, 2)).to_iter_dataset()
        iterator = iter(ds)
        list(iterator)
        counts += iterator.consumed().values()
    assert sum(count.elements for count in counts) == 12
    assert sum(count.epochs for count in counts) == pytest.approx(12 / 13)


class Halves(Iter.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element):
        half = len(element) // 2
        return [part for part in (element[:half], element[half:]) if len(part) > 1]


@pytest.mark.parametrize("place", ["before", "after"])
def test_flat_map_counts_records_with_a_part_delivered(place):
    if place == "before":
        ds = documents().apply(Halves()).shuffle(2).to_iter_dataset()
    else:
        ds = Iter.FlatMapIterDataset(documents().to_iter_dataset(), Halves())
    iterator = iter(ds)
    keys = [int(part[0]) - 1 for part in itertools.islice(iterator, 9)]
    [count] = iterator.consumed().values()
    assert count.elements == len(set(keys))
    assert count.tokens == SOURCES[0].lengths()[sorted(set(keys))].sum()


def test_padding_does_not_count():
    ds = documents().shard(grain.ShardOptions(1, 3), "pad").to_iter_dataset()
    iterator = iter(ds)
    assert [mask for _, mask in iterator].count(False) == 1
    assert iterator.consumed()["source 0"].elements == 4


def test_far_position_needs_no_long_count():
    sizes = [10**12, 10**12]
    parts = [grain.MapDataset.range(size).shuffle(1) for size in sizes]
    ds = grain.MapDataset.mix(parts, [1, 3]).repeat().to_iter_dataset()
    counts = ds.consumed({"next_index": 10**12})
    assert [count.elements for count in counts.values()] == [25 * 10**10, 75 * 10**10]


def test_elastic_state_counts_all_hosts():
    ds = documents().shuffle(1).map(len)
    elastic = Iter.ElasticIterator(ds, 4, grain.ShardOptions(1, 2))
    next(elastic), next(elastic)
    [count] = elastic.consumed(elastic.get_state()).values()
    assert count.elements == 8


def test_names_are_those_of_parts_and_sources():
    parts = {
        "web": grain.MapDataset.concatenate([documents(0), documents(1)]),
        "code": grain.MapDataset.source([1, 2, 3]),
        "more": grain.MapDataset.range(4),
    }
    iterator = iter(grain.MapDataset.mix(parts))
    names = {"web/source 0", "web/source 1", "code", "more"}
    assert iterator.consumed().keys() == names
    shared = grain.MapDataset.source([1, 2])
    ds = grain.MapDataset.mix({"a": shared, "b": shared.shuffle(1)})
    assert list(ds.to_iter_dataset().consumed({"next_index": 1})) == ["[1, 2]"]
    ds = grain.MapDataset.mix([grain.MapDataset.range(2), grain.MapDataset.range(2)])
    names = list(ds.to_iter_dataset().consumed({"next_index": 1}))
    assert names == [
        "RangeMapDataset(start=0, stop=2, step=1) (0)",
        "RangeMapDataset(start=0, stop=2, step=1) (1)",
    ]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"b": [1, 2]}, r"names of sources, 'a', got 'b'"),
        ({"a": [1]}, r"'a' must be 2 ints, one for each record"),
        ({"a": [1.0, 2.0]}, r"'a' must be 2 ints, .* dtype float64"),
        ({"a": [1, -2]}, r"'a' must be at least 0, got -2 for record 1"),
    ],
)
def test_wrong_lengths_raise(lengths, message):
    ds = grain.MapDataset.mix({"a": grain.MapDataset.source([5, 6])})
    with pytest.raises(ValueError, match=message):
        iter(ds).consumed(lengths=lengths)


def test_lengths_of_a_mixture_count_the_tokens_of_its_sources():
    parts = {name: grain.MapDataset.range(n, n + 3) for name, n in (("a", 0), ("b", 9))}
    lengths = {"a": [1, 2, 4], "b": [8, 16, 32]}
    ds = grain.MapDataset.mix(
        {name: part.shuffle(1).repeat() for name, part in parts.items()},
        unit="tokens",
        lengths=lengths,
    )
    iterator = iter(ds.map(str))
    numbers = [int(next(iterator)) for _ in range(5)]
    for name, part in parts.items():
        own = [number - part[0] for number in numbers if number in list(part)]
        count = iterator.consumed()[name]
        tokens = sum(lengths[name][number] for number in own)
        assert (count.elements, count.tokens) == (len(own), tokens)
    [count, _] = iterator.consumed(lengths={"a": [100] * 3}).values()
    assert count.tokens == 100 * count.elements


def test_report_of_a_source_whose_method_lengths_is_another_one():
    class Boxes(list):
        def lengths(self):
            return "cm"

    iterator = iter(grain.MapDataset.source(Boxes([1, 2])))
    assert next(iterator) == 1
    assert iterator.report().sources == ()
    with pytest.raises(ValueError, match="must be 2 ints"):
        iterator.consumed()


def test_unknown_records_raise():
    class Users(grain.IterDataset):
        def __iter__(self):
            return iter(grain.MapDataset.range(3).to_iter_dataset())

    ds = Users().batch(2)
    with pytest.raises(TypeError, match=r"records of .*Users.* not known by index"):
        ds.consumed(iter(ds).get_state())


def test_elements_of_an_iterable_count():
    ds = grain.IterDataset.from_iterable(lambda: range(5), replay=True)
    iterator = iter(ds.batch(2))
    next(iterator)
    [count] = iterator.consumed().values()
    assert (count.elements, count.tokens, count.epochs) == (2, None, None)


def test_inner_iterator_cannot_count():
    iterator = iter(documents().to_iter_dataset().map(features).batch(2, batch_fn=list))
    with pytest.raises(ValueError, match="part of another iterator's chain"):
        iterator._parent.consumed()


def test_state_of_another_chain_is_a_mismatch():
    ds = documents().to_iter_dataset()
    options = grain.MultiprocessingOptions(num_workers=2)
    with pytest.raises(grain.StateMismatch, match=r"must be|Expected the state"):
        ds.mp_prefetch(options).consumed({"next_index": 1})
    with pytest.raises(IndexError, match="out of range"):
        ds.consumed({"next_index": 14})


def test_report_shows_counts_that_need_no_reading():
    parts = [documents(0), documents(1)]
    ds = grain.MapDataset.mix(parts).map(features).to_iter_dataset()
    iterator = iter(ds.batch(4, batch_fn=list))
    next(iterator)
    report = iterator.report()
    assert dict(report.sources) == iterator.consumed()
    tokens = SOURCES[0].lengths()[:2].sum()
    assert f"Delivered from source 0: 2 elements, {tokens} tokens, 0.15" in str(report)
    iterator = iter(ds.filter(is_kept))
    next(iterator)
    assert iterator.report().sources == ()
    iterator = iter(grain.MapDataset.range(4))
    assert iterator.report().sources == ()
