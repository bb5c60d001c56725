"""Rows of documents of known lengths are functions of their index."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as g
from gristmill.sharding import ShardOptions
from support.row_reference import fills_of, pieces_of, row_of

METHODS = ("best_fit", "first_fit", "longest_first", "split")
ASK = g.ReadOptions(0, 0)
NO_WORKERS = g.MultiprocessingOptions(num_workers=0)
LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any)


def documents_of(lengths: Any) -> list[Any]:
    """Return documents whose tokens are all different."""
    ends = np.cumsum(lengths)
    return [np.arange(end - n, end) + 1 for n, end in zip(lengths, ends, strict=True)]


def packed(lengths: Any, capacity: int = 16, **how: Any) -> Any:
    return g.MapDataset.source(documents_of(lengths)).pack(capacity, lengths, **how)


def spans_of(rows: Any) -> list[Any]:
    """Return the spans of each row: (document, begin, end)."""
    spans = rows.spans(np.arange(len(rows)))
    triples = list(zip(*(each.tolist() for each in spans[1:]), strict=True))
    return [triples[a:b] for a, b in itertools.pairwise(spans.offsets.tolist())]


def tokens_of(rows: Any) -> list[int]:
    """Return the tokens of some rows or batches, in order and without padding."""
    return [
        token
        for row in rows
        for token in row["tokens"][row["tokens_segment_ids"] > 0].tolist()
    ]


def lengths_by_seed(seed: int, count: int) -> Any:
    rng = np.random.default_rng(seed)
    return np.clip(rng.lognormal(2, 1, count), 1, 60).astype(np.int64)


@settings(max_examples=40)
@given(
    lengths=LENGTHS,
    capacity=st.integers(1, 20),
    method=st.sampled_from(METHODS),
    long_documents=st.sampled_from(["cut", "drop"]),
    window=st.sampled_from([1, 3, 1000]),
    seed=st.sampled_from([None, 0, 7]),
    num_epochs=st.integers(1, 3),
)
def test_rows_match_reference_and_have_each_token_once(
    lengths, capacity, method, long_documents, window, seed, num_epochs
):
    how = {"method": method, "long_documents": long_documents, "window": window}
    rows = packed(lengths, capacity, seed=seed, num_epochs=num_epochs, **how)
    documents, spans = documents_of(lengths), spans_of(rows)
    for i, row_spans in enumerate(spans):
        np.testing.assert_equal(rows[i], row_of(documents, row_spans, capacity))
    kept = pieces_of(lengths, capacity, long_documents)
    expected = sorted(
        token for number, begin, end in kept for token in documents[number][begin:end]
    )
    per_epoch: dict[int, list[int]] = {epoch: [] for epoch in range(num_epochs)}
    epochs = rows.plan.epochs(np.arange(len(rows))).tolist()
    for epoch, row in zip(epochs, rows, strict=True):
        per_epoch[epoch] += tokens_of([row])
    assert all(sorted(found) == expected for found in per_epoch.values())
    if window == 1000 and long_documents == "cut":
        fills = [sum(end - begin for _, begin, end in row) for row in spans]
        if seed is None or method in ("best_fit", "split"):
            reference = fills_of(method, kept, capacity)
            assert sorted(fills) == sorted(reference * num_epochs)
    counts = rows.pack_counts()
    dropped = num_epochs * (sum(lengths) - len(expected))
    assert counts.dropped_tokens == dropped
    assert counts.rows == len(spans)
    assert counts.packed_tokens == num_epochs * len(expected)
    if spans:
        assert counts.density == counts.packed_tokens / (len(spans) * capacity)


@settings(max_examples=40)
@given(
    lengths=LENGTHS,
    global_batch_size=st.sampled_from([4, 12]),
    cost=st.sampled_from([None, "tokens", "attention", np.sqrt]),
    ranks=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=5),
    seed=st.sampled_from([None, 3]),
    streams=st.sampled_from([None, 1, 3]),
    data=st.data(),
)
def test_ranks_that_change_deliver_each_global_batch_once(
    lengths, global_batch_size, cost, ranks, seed, streams, data
):
    rows = packed(
        lengths,
        seed=seed,
        num_epochs=3,
        cost=cost,
        global_batch_size=global_batch_size,
    )
    steps = len(rows) // global_batch_size
    expected = [row["tokens"].tolist() for row in rows][: steps * global_batch_size]
    found: list[Any] = []
    state = None
    for count in ranks:
        start = len(found) // global_batch_size
        stop = data.draw(st.integers(start, steps))
        parts, states = [], set()
        for rank in range(count):
            own = rows.deal(ShardOptions(rank, count)).map(lambda row: row["tokens"])
            batches = own.batch(global_batch_size // count).to_iter_dataset(ASK)
            if streams is not None:
                batches = batches.mp_prefetch(NO_WORKERS, streams=streams)
            iterator = iter(batches)
            if state is not None:
                iterator.set_state(json.loads(state))
            parts.append([next(iterator).tolist() for _ in range(start, stop)])
            states.add(json.dumps(iterator.get_state()))
        (state,) = states
        if streams is None:
            assert json.loads(state) == {"next_index": stop}
        for step in zip(*parts, strict=True):
            found += [row for part in step for row in part]
    # Within a global batch, ranks may have rows in any order.
    for first in range(0, len(found), global_batch_size):
        last = first + global_batch_size
        assert sorted(found[first:last]) == sorted(expected[first:last])


def test_64_ranks_restart_as_48_and_as_96():
    global_batch_size = 192
    rows = packed(
        lengths_by_seed(0, 30_000),
        64,
        seed=1,
        cost="attention",
        global_batch_size=global_batch_size,
    ).map(lambda row: row["tokens"])

    def step_of(ranks: int, state: Any) -> tuple[list[Any], Any]:
        """Return the rows of all ranks' next step, and the one state of all ranks."""
        taken, states = [], []
        for rank in range(ranks):
            own = rows.deal(ShardOptions(rank, ranks)).batch(global_batch_size // ranks)
            iterator = iter(own.to_iter_dataset(ASK))
            iterator.set_state(state)
            taken += next(iterator).tolist()
            states.append(iterator.get_state())
        assert all(each == states[0] for each in states)
        return taken, states[0]

    state: Any = {"next_index": 0}
    for step, ranks in enumerate((64, 64, 48, 96, 1)):
        found, state = step_of(ranks, state)
        first = step * global_batch_size
        expected = [rows[first + i].tolist() for i in range(global_batch_size)]
        assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_costs_of_ranks_differ_by_two_percent(ranks):
    global_batch_size = 4 * ranks
    lengths = lengths_by_seed(5, 20_000)
    rows = packed(
        lengths, 64, seed=2, cost="attention", global_batch_size=global_batch_size
    )
    costs = np.array(
        [sum((end - begin) ** 2 for _, begin, end in row) for row in spans_of(rows)]
    )
    deals = [rows.deal(ShardOptions(rank, ranks)) for rank in range(ranks)]
    size = global_batch_size // ranks
    steps = len(deals[0]) // size
    own = np.stack(
        [costs[each._to_ancestor_indices(np.arange(steps * size))] for each in deals]
    )
    sums = own.reshape(ranks, steps, size).sum(axis=2)
    ratios = sums.max(axis=0) / sums.mean(axis=0)
    assert np.mean(ratios) <= 1.02
