"""Packed mixtures of token sources: their lengths, ranks, workers and errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as g
from gristmill._dataset.nodes import kept_order, mix_windows
from gristmill.sharding import ShardOptions
from gristmill.sources import TokenArrayDataSource

ASK = g.ReadOptions(0, 0)
RNG = np.random.default_rng(4)


def part(folder: Any, name: str, mean: int, count: int) -> Any:
    """Return a dataset of documents, each with the end-of-document token 0."""
    lengths = RNG.integers(1, 2 * mean, count)
    tokens = RNG.integers(1, 60_000, lengths.sum()).astype(np.uint16)
    tokens[np.cumsum(lengths) - 1] = 0
    path = folder / f"{name}.bin"
    tokens.tofile(path)
    return g.MapDataset.source(TokenArrayDataSource([path], np.uint16, 0))


@pytest.fixture
def parts(tmp_path):
    return [part(tmp_path, "a", 5, 200), part(tmp_path, "b", 20, 100)]


def mixtures(parts: Any) -> dict[str, Any]:
    a, b = parts
    mix = g.MapDataset.mix
    return {
        "plain": mix([a, b], [2, 1]),
        "seeds": mix([a.seed(1).shuffle(), b[3:90:2]], [2, 1]),
        "repeated": mix([a.shuffle(1).repeat(), b], [9, 1]),
        "tokens": mix([a.shuffle(1).repeat(), b], [1, 1], unit="tokens"),
        "epochs": mix([a.shuffle(1), b.shuffle(2)], unit="tokens").repeat(2),
        "dropped": mix([a, b], epochs=[2, 1], at_end="drop", unit="tokens"),
        "nested": mix([mix([a, b]), a[::-1]], [1, 2]),
        "slice": mix([a.repeat(), b.shuffle(2).repeat()], unit="tokens")[7:500],
        "listed": mix([a[[7, 3, 3]], b[np.arange(90)]], [1, 9]),
        "wrapped": a.shard(ShardOptions(1, 3), "wrap"),
        "windows": g.experimental.WindowShuffleMapDataset(a, window_size=9, seed=1),
        "concatenated": g.MapDataset.concatenate([a, b]).shuffle(3),
    }


def test_lengths_of_mixtures_are_those_of_their_elements(parts):
    for name, ds in mixtures(parts).items():
        rows = ds.pack(64, seed=1)
        expected = ds.pack(64, [len(document) for document in ds], seed=1)
        np.testing.assert_equal(list(rows), list(expected), err_msg=name)


def test_rows_compute_no_order_of_the_mixture_again(parts, monkeypatch):
    rows = {}
    for name in ("tokens", "epochs", "dropped"):
        rows[name] = mixtures(parts)[name].pack(64, seed=1)

    def fail(*arguments):
        raise AssertionError("rows must use the order that pack has computed")

    monkeypatch.setattr(mix_windows.PlanWindows, "after", fail)
    for each in rows.values():
        assert len(list(pickle.loads(pickle.dumps(each)))) == len(list(each)) > 9


@given(st.integers(1, 4000), st.sampled_from([1, 3, 300]), st.data())
@settings(max_examples=20)
def test_kept_order_is_the_order_of_turns(length, part_count, data):
    turns = np.random.default_rng(length).integers(part_count, size=length)
    expected = [[], []]
    counts = [0] * part_count
    for part in turns.tolist():
        expected[0].append(part)
        expected[1].append(counts[part])
        counts[part] += 1
    expected = np.array(expected)
    kept = kept_order.KeptOrder(
        lambda positions: tuple(expected[:, positions]), length, part_count
    )
    positions = data.draw(
        st.one_of(
            st.lists(st.integers(0, length - 1), min_size=1, max_size=30),
            st.integers(0, length - 1).map(lambda first: range(first, length)),
        )
    )
    positions = np.array(positions)
    np.testing.assert_equal(kept.take(positions), expected[:, positions])


def test_maps_of_parts_keep_the_lengths_given_to_mix(parts):
    lengths = [[len(document) for document in each] for each in parts]
    dicts = [each.map(lambda x: {"text": x}).shuffle(1) for each in parts]
    ds = g.MapDataset.mix(dicts, unit="tokens", lengths=lengths)
    expected = [len(element["text"]) for element in ds]
    assert sum(expected) == ds.pack({"text": 64}).pack_counts().packed_tokens


def test_other_numbers_of_ranks_resume_a_packed_mixture(parts):
    def batches(rank: int, ranks: int) -> Any:
        ds = g.MapDataset.mix(
            [each.shuffle(1).repeat(3) for each in parts], unit="tokens"
        )
        rows = ds.pack(64, cost="attention", global_batch_size=12, window=50)
        dealt = rows.deal(ShardOptions(rank, ranks)).batch(12 // ranks)
        return iter(dealt.to_iter_dataset(ASK))

    def step(iterators: list[Any]) -> list[bytes]:
        batch = [next(each)["tokens"] for each in iterators]
        return sorted(row.tobytes() for row in np.concatenate(batch))

    two = [batches(rank, 2) for rank in range(2)]
    first = [step(two) for _ in range(3)]
    one = [batches(0, 1)]
    assert first == [step(one) for _ in range(3)]
    three = [batches(rank, 3) for rank in range(3)]
    for each in three:
        each.set_state(two[0].get_state())
    assert step(three) == step(one)


def test_lengths_that_are_not_known_are_demanded(parts):
    unknown = g.MapDataset.source([np.ones(3)])
    for ds in (
        g.MapDataset.mix([parts[0], unknown]),
        g.MapDataset.mix([parts[0].map(lambda x: x), parts[1]]),
        g.MapDataset.mix(parts).map(lambda x: x),
    ):
        with pytest.raises(TypeError, match="Pass lengths="):
            ds.pack(64)


def test_endless_documents_are_an_error(parts):
    endless = [each.repeat() for each in parts]
    for ds in (endless[0], g.MapDataset.mix(endless, unit="tokens")):
        for lengths in (None, [1, 2]):
            with pytest.raises(ValueError, match=r"endless.*ds\[:count\]"):
                ds.pack(64, lengths)


def test_mixtures_have_no_random_steps(parts):
    drawn = parts[0].seed(1).random_map(lambda x, rng: x)
    lengths = [len(document) for document in parts[0]]
    with pytest.raises(ValueError, match="pack cannot follow MixedMapDataset"):
        g.MapDataset.mix([drawn, drawn])[:5].pack(64, [1] * 5)
    joined = g.MapDataset.concatenate([drawn, drawn])
    assert len(joined.pack(64, lengths * 2, num_epochs=2)) > 0


def test_copies_for_threads_and_processes_do_not_copy_lengths(tmp_path):
    source = part(tmp_path, "c", 5, 10_000)
    ds = source.pack(64, seed=2)
    copied = copy.deepcopy(ds)
    assert copied.plan is ds.plan
    np.testing.assert_equal(copied[5], ds[5])
    pickled = pickle.dumps(ds)
    assert len(pickled) < 10_000
    again = pickle.loads(pickled)
    np.testing.assert_equal([*again], [*ds])
    assert repr(again) == repr(ds)


def test_other_lengths_than_those_of_a_pickled_plan_raise(tmp_path):
    pickled = pickle.dumps(part(tmp_path, "d", 5, 100).pack(64))
    part(tmp_path, "d", 5, 100)
    with pytest.raises(ValueError, match=r"must be those .*, but they have changed"):
        pickle.loads(pickled)
