"""Mixtures that count tokens, change weights or drop datasets.

A loop in Python that takes one element after another is the oracle.
"""

from __future__ import annotations

import itertools
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gristmill as g
from gristmill._dataset.nodes import counted_mix, mix_plan, running_counts
from gristmill.mixing import constant_stages, scheduled_stages
from support.mix_oracle import mix_order

MAX_ELEMENTS = 120


class Documents:
    """A source of arrays of tokens that has their lengths."""

    def __init__(self, name, lengths):
        self.name = name
        self._lengths = np.array(lengths, np.int32)

    def __len__(self):
        return len(self._lengths)

    def __getitem__(self, key):
        return np.full(self._lengths[key], 1000 * self.name + key, np.int32)

    def lengths(self):
        return self._lengths


class Mixture:
    """Drawn datasets, and the arguments of their mixture."""

    def __init__(self, draw):
        count = draw(st.integers(1, 4))
        sizes = st.lists(st.integers(0, 20), min_size=1, max_size=40)
        self.lengths = [draw(sizes) for _ in range(count)]
        for lengths in self.lengths:
            lengths[0] += 1
        # Elements are pairs of the dataset and the record.
        self.parts = []
        for number, lengths in enumerate(self.lengths):
            part = g.MapDataset.source([(number, key) for key in range(len(lengths))])
            self.parts.append(self._reorder(draw, part, number))
        units = st.sampled_from(["tokens", "elements"])
        self.unit = self.progress_unit = draw(units)
        weight = st.floats(0.01, 1)
        if draw(st.booleans()):
            self.weights: Any = draw(st.lists(weight, min_size=count, max_size=count))
            self.stages = constant_stages(self.weights, None, count)
        else:
            self.progress_unit = draw(units)
            self.weights = self._schedule(draw, weight, count)
            self.stages = scheduled_stages(self.weights, None, count)
        epochs = st.sampled_from([1, 2, 3, None])
        self.epochs = draw(st.lists(epochs, min_size=count, max_size=count))
        self.at_end = draw(st.sampled_from(["stop", "drop"]))

    def _reorder(self, draw, part, number):
        if draw(st.booleans()):
            part = part.shuffle(seed=number)
        if draw(st.integers(0, 3)) == 0:
            part = part[: draw(st.integers(1, len(part)))]
        return part

    def _schedule(self, draw, weight, count):
        weights = st.lists(
            st.one_of(st.just(0.0), weight), min_size=count, max_size=count
        ).filter(any)
        starts = draw(st.lists(st.integers(1, 150), unique=True, max_size=3))
        points = [(start, draw(weights)) for start in (0, *sorted(starts))]
        assume(all(any(point[1][i] for point in points) for i in range(count)))
        ramp = draw(st.booleans())
        return g.MixSchedule(points, unit=self.progress_unit, ramp=ramp)

    @property
    def counts_tokens(self):
        return "tokens" in (self.unit, self.progress_unit)

    @property
    def how(self):
        return {"unit": self.unit, "epochs": self.epochs, "at_end": self.at_end}

    def map_dataset(self):
        lengths = self.lengths if self.counts_tokens else None
        return g.MapDataset.mix(self.parts, self.weights, lengths=lengths, **self.how)

    def iter_dataset(self):
        parts = [part.to_iter_dataset() for part in self.parts]
        tokens = self.tokens if self.counts_tokens else None
        return g.IterDataset.mix(parts, self.weights, tokens=tokens, **self.how)

    def tokens(self, element):
        return self.lengths[element[0]][element[1]]

    def expected(self, reseeded=True):
        """Return the first pairs (dataset, index in it) of the mixture."""
        self.repeated = [
            part.repeat(epochs, reseed_each_epoch=reseeded)
            for part, epochs in zip(self.parts, self.epochs, strict=True)
        ]
        return [
            *itertools.islice(
                mix_order(
                    [
                        lambda i, part=part: self.tokens(part[i])
                        for part in self.repeated
                    ],
                    [(stage.start, stage.weights) for stage in self.stages],
                    unit=self.unit,
                    progress_unit=self.progress_unit,
                    ends=[
                        math.inf if epochs is None else len(part)
                        for part, epochs in zip(self.repeated, self.epochs, strict=True)
                    ],
                    at_end=self.at_end,
                ),
                MAX_ELEMENTS,
            )
        ]


mixtures = st.composite(lambda draw: Mixture(draw))()


def is_planned(mixture):
    """Return whether the mixture has none of Grain's rules alone."""
    plain = mixture.unit == "elements" and mixture.at_end == "stop"
    return not plain or isinstance(mixture.weights, g.MixSchedule)


@pytest.fixture
def small_windows(monkeypatch):
    """Compute the order in small windows, and count rather than walk."""
    monkeypatch.setattr(mix_plan, "WINDOW", 4)
    monkeypatch.setattr(mix_plan, "MAX_WINDOW", 16)
    monkeypatch.setattr(mix_plan, "MAX_WALK", 8)
    monkeypatch.setattr(running_counts, "BLOCK", 8)
    monkeypatch.setattr(running_counts, "MIN_BLOCKS", 2)


@pytest.mark.usefixtures("small_windows")
@given(mixtures, st.data())
@settings(max_examples=25)
def test_map_dataset_has_the_order_of_the_loop(mixture, data):
    assume(is_planned(mixture))
    try:
        dataset = mixture.map_dataset()
    except ValueError as error:
        assume("has no tokens" not in str(error))
        raise
    order = mixture.expected()
    elements = [mixture.repeated[part][index] for part, index in order]
    assert min(len(dataset), MAX_ELEMENTS) == len(elements)
    for index in data.draw(st.lists(st.integers(0, len(order)), max_size=4)):
        counts = [sum(part == i for part, _ in order[:index]) for i in range(4)]
        found = dataset.indices_before(index) if index < len(order) else counts
        assert list(found) == counts[: len(found)]
        fresh = pickle.loads(pickle.dumps(dataset))
        assert index == len(order) or fresh[index] == elements[index]
    assert [dataset[index] for index in range(len(elements))] == elements


@given(mixtures, st.data())
@settings(max_examples=25)
def test_iter_dataset_resumes_in_the_order_of_the_loop(mixture, data):
    assume(is_planned(mixture))
    order = mixture.expected(reseeded=False)
    elements = [mixture.repeated[part][index] for part, index in order]
    stop = data.draw(st.integers(0, len(elements)))
    iterator = iter(mixture.iter_dataset())
    assert [*itertools.islice(iterator, stop)] == elements[:stop]
    state = json.loads(json.dumps(iterator.get_state()))
    iterator = iter(mixture.iter_dataset())
    iterator.set_state(state)
    found = [*itertools.islice(iterator, MAX_ELEMENTS - stop)]
    assert found == elements[stop:]
    counts = [sum(part == i for part, _ in order) for i in range(len(mixture.parts))]
    assert iterator.counts.elements == counts


def log_normal(rng, count, mean):
    return np.clip(rng.lognormal(mean, 1, count), 1, 1 << 14).astype(np.int32)


@given(
    st.lists(st.floats(0.1, 1), min_size=2, max_size=5),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(max_examples=8)
def test_shares_are_within_half_a_percent(weights, seed, has_schedule):
    rng = np.random.default_rng(seed)
    lengths = [log_normal(rng, 9_999, rng.uniform(3, 7)) for _ in weights]
    parts = [
        g.MapDataset.range(9_999).shuffle(seed=i).repeat() for i in range(len(weights))
    ]
    first: Any = weights
    if has_schedule:  # The weights of a ramp are its middle's on average.
        first = g.MixSchedule(
            [(0, weights[::-1]), (10_000, weights)], unit="tokens", ramp=True
        )
    mixed = g.MapDataset.mix(parts, first, unit="tokens", lengths=lengths)
    tokens = np.array(mixed.tokens_before(1_000 * 256))
    shares = np.array(weights) / sum(weights)
    assert np.abs(tokens / tokens.sum() / shares - 1).max() < 0.005


def test_drop_delivers_each_element_of_each_epoch_once():
    lengths = [[5, 1, 3], [2, 2], [9]]
    parts = [
        g.MapDataset.source([(i, key) for key in range(len(each))]).shuffle(seed=i)
        for i, each in enumerate(lengths)
    ]
    how: Any = {"unit": "tokens", "at_end": "drop", "epochs": [1, 3, 2]}
    mixed = g.MapDataset.mix(parts, lengths=lengths, **how)
    expected = sorted(
        (i, key)
        for i, (each, epochs) in enumerate(zip(lengths, [1, 3, 2], strict=True))
        for key in range(len(each))
        for _ in range(epochs)
    )
    assert len(mixed) == len(expected)
    assert sorted(mixed) == expected
    # The same in the next epoch, as in each epoch of the parts.
    assert sorted(mixed.at_epoch(1)) == expected
    assert sorted(list(mixed.repeat(2))[len(mixed) :]) == expected


def test_union_of_ranks_or_streams_is_the_plan():
    lengths = log_normal(np.random.default_rng(0), 300, 3)
    parts = [g.MapDataset.range(300 * i, 300 * i + 300).shuffle(i) for i in range(3)]
    how: Any = {"unit": "tokens", "lengths": [lengths] * 3}
    mixed = g.MapDataset.mix(parts, [3, 2, 1], **how)
    plan = list(mixed)
    assert len(set(plan)) == len(plan) == len(mixed)
    for ranks in (1, 4, 7):
        for rank in range(ranks):
            assert list(mixed[rank::ranks]) == plan[rank::ranks]
    options = g.MultiprocessingOptions(num_workers=0)
    streams = mixed.to_iter_dataset().mp_prefetch(options, streams=5)
    assert sorted(streams) == sorted(plan)


def test_elements_are_read_from_a_source_with_lengths():
    parts = {
        "a": g.MapDataset.source(Documents(0, [4, 4, 4])).shuffle(seed=1),
        "b": g.MapDataset.source(Documents(1, [2] * 6)).map(lambda x: x),
    }
    mixed = g.MapDataset.mix(parts, {"a": 1, "b": 1}, unit="tokens")
    found = [(int(each[0]) // 1000, len(each)) for each in mixed]
    assert found == [(0, 4), (1, 2), (1, 2)] * 3
    assert mixed.to_iter_dataset().ids({"next_index": 4})["key"].tolist() == [2]


def test_epochs_keep_the_order_of_repeated_parts():
    parts = [g.MapDataset.range(i, i + 9).shuffle(i) for i in (0, 10)]
    repeated = [parts[0].repeat(2), parts[1].repeat(3)]
    mixed = g.MapDataset.mix(parts, [2, 1], epochs=[2, 3])
    assert list(mixed) == list(g.MapDataset.mix(repeated, [2, 1]))
    iterators = [part.to_iter_dataset() for part in parts]
    mixed = g.IterDataset.mix(iterators, [1, 1], epochs=2)
    assert len(mixed) == len(list(mixed)) == 36


def test_files_of_tokens_have_lengths(tmp_path):
    paths = []
    for name, tokens in (("a", [1, 1, 0] * 50), ("b", [2, 0] * 100)):
        paths.append(tmp_path / f"{name}.bin")
        np.array(tokens, np.uint16).tofile(paths[-1])
    parts = [
        g.MapDataset.source(
            g.sources.TokenArrayDataSource([str(path)], dtype=np.uint16, eos_id=0)
        ).shuffle(seed=number)
        for number, path in enumerate(paths)
    ]
    mixed = g.MapDataset.mix(parts, [3, 1], unit="tokens")
    tokens = [each.tolist() for each in mixed]
    assert sum(len(each) for each in tokens if len(each) == 3) == 150
    assert sum(len(each) for each in tokens if len(each) == 2) == 50


def test_plain_arguments_keep_the_order_and_states():
    parts = [g.MapDataset.range(i, i + 9) for i in (0, 10)]
    assert list(g.MapDataset.mix(parts, [2, 1], unit="elements", epochs=1)) == list(
        g.MapDataset.mix(parts, [2, 1])
    )
    parts = [part.to_iter_dataset() for part in parts]
    iterator = iter(g.IterDataset.mix(parts, [2, 1], at_end="stop"))
    assert list(iterator) == list(g.IterDataset.mix(parts, [2, 1]))
    assert iterator.get_state().keys() == {"parents", "index", "stop"}


def token_lists(first, lengths):
    """Return a dataset of lists of one token."""
    records = [[first + key] * count for key, count in enumerate(lengths)]
    return g.MapDataset.source(records).to_iter_dataset()


def test_new_weights_by_name_apply_immediately():
    def mix(weights):
        parts = {
            name: token_lists(0, [2] * 400) for name in ("a", "b", "c")[: len(weights)]
        }
        named = dict(zip(parts, weights, strict=True))
        return iter(g.IterDataset.mix(parts, named, unit="tokens"))

    first = mix([9, 1])
    for _ in range(100):
        next(first)
    second = mix([1, 1, 2])
    second.set_state(first.get_state())
    for _ in range(100):
        next(second)
    assert second.counts.elements == [90 + 25, 10 + 25, 50]
    # Without its names, the state keeps the counts of the others.
    third = mix([1, 3])
    third.set_state(json.loads(json.dumps(second.get_state())))
    for _ in range(40):
        next(third)
    assert third.counts.elements == [115 + 10, 35 + 30]
    fourth = mix([1, 1, 1])
    fourth.set_state(third.get_state())
    assert fourth.counts.elements == [125, 65, 50]


def test_dataset_that_comes_back_does_not_catch_up():
    def mix(*names):
        parts = {name: token_lists(0, [2] * 400) for name in names}
        return iter(g.IterDataset.mix(parts, unit="tokens"))

    def elements_of_next(iterator, count):
        before = iterator.counts.elements
        for _ in range(count):
            next(iterator)
        pairs = zip(before, iterator.counts.elements, strict=True)
        return [after - first for first, after in pairs]

    both, one, again = mix("a", "b"), mix("b"), mix("a", "b")
    assert elements_of_next(both, 11) == [6, 5]
    one.set_state(both.get_state())
    assert elements_of_next(one, 100) == [100]
    again.set_state(json.loads(json.dumps(one.get_state())))
    assert elements_of_next(again, 21) == [10, 11]


def test_failing_and_absent_elements_do_not_count():
    def fail_at_2(element):
        if element[0] == 2:
            raise KeyError("two")
        return element if element[0] != 3 else None

    bad = g.MapDataset.source([[n] * 2 for n in range(6)]).map(fail_at_2)
    parts = [bad.to_iter_dataset(allow_nones=True), token_lists(10, [2] * 6)]
    iterator = iter(g.IterDataset.mix(parts, unit="tokens"))
    found = []
    while True:
        try:
            found.append(next(iterator))
        except KeyError as error:
            assert "input_index=0" in "".join(error.__notes__)
            found.append("failed")
        except StopIteration:
            break
    firsts = [each if each in (None, "failed") else each[0] for each in found]
    assert firsts == [0, 10, 1, 11, "failed", None, 4, 12, 5, 13]
    assert iterator.counts.elements == [5, 4]


def test_part_that_returns_only_empty_elements_raises(monkeypatch):
    monkeypatch.setattr(counted_mix, "MAX_EMPTY", 50)
    parts = {"none": token_lists(0, [0]), "some": token_lists(1, [2] * 9)}
    mixed = g.IterDataset.mix(parts, unit="tokens", epochs={"none": None, "some": 1})
    iterator = iter(mixed)
    assert [*itertools.islice(iterator, 50)] == [[]] * 50
    for _ in range(2):
        with pytest.raises(ValueError, match="last 50 elements of dataset 'none' have"):
            next(iterator)
    # Parts with some tokens, and mixtures by elements, may have as many.
    parts["none"] = token_lists(0, [0] * 49 + [1] + [0] * 49)
    assert len(list(g.IterDataset.mix(parts, unit="tokens", at_end="drop"))) == 108
    schedule = g.MixSchedule([(0, [1, 0]), (9, [1, 1])], unit="tokens")
    parts = [token_lists(0, [0] * 99)] * 2
    assert len(list(g.IterDataset.mix(parts, schedule))) == 99


@pytest.mark.usefixtures("small_windows")
def test_endless_part_whose_order_selects_no_tokens_raises():
    part = g.MapDataset.range(8)
    part = g.experimental.WindowShuffleMapDataset(part, window_size=2, seed=1)[:2]
    lengths = [[0, 0, 0, 0, 0, 1, 0, 0], [1] * 8]
    parts = {"first two": part.repeat(), "all": g.MapDataset.range(8)}
    lengths = dict(zip(parts, lengths, strict=True))
    with pytest.raises(ValueError, match="dataset 'first two' has no tokens"):
        g.MapDataset.mix(parts, unit="tokens", lengths=lengths)


def test_fields_and_functions_count_tokens():
    records = [{"ids": np.zeros(n), "weight": 2 * n} for n in (3, 1, 2)]
    part = g.MapDataset.source(records).to_iter_dataset()
    for tokens, expected in (("ids", 6), (lambda each: each["weight"], 12)):
        mixed = g.IterDataset.mix([part], unit="tokens", tokens=tokens)
        iterator = iter(mixed)
        assert len(list(iterator)) == 3
        assert iterator.counts.tokens == [expected]


@pytest.mark.multiprocess
def test_streams_resume_exactly_with_other_workers():
    lengths = log_normal(np.random.default_rng(1), 50, 2)
    parts = [
        g.MapDataset.source(Documents(i, lengths)).shuffle(i).to_iter_dataset()
        for i in range(2)
    ]
    schedule = g.MixSchedule([(0, [1, 0]), (400, [1, 3])], unit="tokens", ramp=True)

    def chain(workers):
        mixed = g.IterDataset.mix(parts, schedule, unit="tokens", at_end="drop")
        options = g.MultiprocessingOptions(num_workers=workers)
        return iter(mixed.map(len).mp_prefetch(options, streams=3))

    expected = list(chain(0))
    assert len(expected) == 100
    iterator = chain(2)
    assert [*itertools.islice(iterator, 30)] == expected[:30]
    state = iterator.get_state()
    iterator.close()
    resumed = chain(1)
    resumed.set_state(state)
    assert list(resumed) == expected[30:]
    resumed.close()


def test_streams_change_weights_after_their_part_of_the_tokens():
    parts = [token_lists(first, [1] * 400) for first in (0, 1000)]
    schedule = g.MixSchedule([(0, [1, 0]), (100, [0, 1])], unit="tokens")
    mixed = g.IterDataset.mix(parts, schedule, unit="tokens")
    options = g.MultiprocessingOptions(num_workers=0)
    elements = list(mixed.mp_prefetch(options, streams=4))
    assert [each[0] >= 1000 for each in elements[:200]] == [False] * 100 + [True] * 100
