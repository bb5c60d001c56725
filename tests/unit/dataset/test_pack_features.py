"""Rows of documents whose features have lengths of their own."""

from __future__ import annotations

import itertools
import re
from typing import Any

import cloudpickle
import grain as real_grain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as g
from gristmill.sharding import ShardOptions
from support import feature_reference

METHODS = ("best_fit", "first_fit", "longest_first", "split")
ASK = g.ReadOptions(0, 0)
STRUCT = {"text": 16, "image": 6, "sound": 9}
RNG = np.random.default_rng(4)
# Many documents have no image or no sound; some have nothing else.
SIZES = [
    (int(text), int(image), int(sound))
    for text, image, sound in zip(
        np.clip(RNG.lognormal(1.5, 1, 200), 0, 40) * (RNG.random(200) < 0.9),
        RNG.integers(0, 7, 200) * (RNG.random(200) < 0.4),
        RNG.integers(0, 10, 200) * (RNG.random(200) < 0.4),
        strict=True,
    )
]


def documents_of(sizes: Any) -> list[Any]:
    """Return documents whose cells are all different."""
    numbers = itertools.count(1)

    def cells(count: int) -> Any:
        return np.array([next(numbers) for _ in range(count)], np.int64)

    documents = []
    for text, image, *more in sizes:
        document = {"text": cells(text), "image": cells(2 * image).reshape(-1, 2)}
        if more:
            document["sound"] = cells(*more).astype("f4")
        documents.append(document)
    return documents


def lengths_of(sizes: Any) -> dict[str, Any]:
    names = list(STRUCT)[: len(sizes[0])]
    return {name: [each[i] for each in sizes] for i, name in enumerate(names)}


def packed(sizes: Any = SIZES, struct: Any = STRUCT, **how: Any) -> Any:
    ds = g.MapDataset.source(documents_of(sizes))
    return ds.pack(struct, lengths_of(sizes), **how)


def spans_of(rows: Any) -> list[Any]:
    """Return the spans of each row: (document, begin, end)."""
    spans = rows.spans(np.arange(len(rows)))
    triples = list(zip(*(each.tolist() for each in spans[1:]), strict=True))
    return [triples[a:b] for a, b in itertools.pairwise(spans.offsets.tolist())]


def cells_of(rows: Any) -> dict[str, list[Any]]:
    """Return the cells of rows by feature, in order and without padding."""
    return {
        name: [
            cell
            for row in rows
            for cell in row[name][row[f"{name}_segment_ids"] > 0].ravel().tolist()
        ]
        for name in STRUCT
        if name in rows[0]
    }


def assert_same(found: Any, expected: Any) -> None:
    np.testing.assert_equal(list(found), list(expected))


@st.composite
def sizes_and_struct(draw: Any) -> Any:
    """Draw the lengths of documents, and the lengths of rows."""
    count = draw(st.integers(2, 3))
    struct = {name: draw(st.integers(1, 20)) for name in list(STRUCT)[:count]}
    text, *extras = struct.values()
    one = st.tuples(st.integers(0, 2 * text), *(st.integers(0, n) for n in extras))
    return draw(st.lists(one, min_size=1, max_size=40)), struct


@settings(max_examples=60)
@given(
    drawn=sizes_and_struct(),
    method=st.sampled_from(METHODS),
    long_documents=st.sampled_from(["cut", "drop"]),
)
def test_rows_match_reference(drawn, method, long_documents):
    sizes, struct = drawn
    how = {"method": method, "long_documents": long_documents}
    rows = packed(sizes, struct, padding_struct=dict.fromkeys(struct, 7), **how)
    capacities = list(struct.values())
    if method == "split":
        expected = feature_reference.split_rows_of(sizes, capacities, long_documents)
    else:
        pieces = feature_reference.pieces_of(sizes, capacities, long_documents)
        expected = feature_reference.rows_of(method, pieces, capacities)
    spans = spans_of(rows)
    assert sorted(spans) == sorted(expected)
    documents, paddings = documents_of(sizes), dict.fromkeys(struct, 7)
    for row, row_spans in zip(rows, spans, strict=True):
        expected_row = feature_reference.row_of(documents, row_spans, struct, paddings)
        np.testing.assert_equal(row, expected_row)
        assert {key: row[key].dtype for key in row} == {
            key: expected_row[key].dtype for key in row
        }
    counts = rows.pack_counts()
    kept = {document for row in spans for document, *_ in row}
    assert counts.rows == len(spans)
    assert counts.packed_tokens == sum(sizes[document][0] for document in kept)
    assert counts.empty_documents == sum(not any(each) for each in sizes)
    assert counts.dropped_documents + counts.empty_documents == len(sizes) - len(kept)
    assert (
        counts.dropped_tokens == sum(each[0] for each in sizes) - counts.packed_tokens
    )


@settings(max_examples=40)
@given(
    drawn=sizes_and_struct(),
    method=st.sampled_from(METHODS),
    window=st.sampled_from([1, 3, 1000]),
    seed=st.sampled_from([None, 0, 7]),
    cost=st.sampled_from([None, "attention"]),
    data=st.data(),
)
def test_every_cell_is_in_each_epoch_once(drawn, method, window, seed, cost, data):
    sizes, struct = drawn
    how = {"method": method, "window": window, "seed": seed, "num_epochs": 2}
    rows = packed(sizes, struct, cost=cost, global_batch_size=4, **how)
    epochs = rows.plan.epochs(np.arange(len(rows)))
    if not len(rows):
        assert not any(map(any, sizes))
        return
    documents = documents_of(sizes)
    for epoch in range(2):
        found = cells_of([rows[i] for i in np.flatnonzero(epochs == epoch).tolist()])
        for name in struct:
            all_cells = [document[name].ravel() for document in documents]
            assert sorted(found[name]) == np.concatenate(all_cells).tolist()
    # Another plan gives the same rows, in any order of calls.
    again = packed(sizes, struct, cost=cost, global_batch_size=4, **how)
    for i in data.draw(st.permutations(range(len(rows)))):
        np.testing.assert_equal(again[i], rows[i])


@settings(max_examples=40)
@given(
    drawn=sizes_and_struct(),
    padding=st.sampled_from([None, {"text": 5, "image": None, "sound": 2.5}]),
)
def test_first_fit_rows_equal_those_of_grain(drawn, padding):
    sizes, struct = drawn
    sizes = [(min(size[0], struct["text"]), *size[1:]) for size in sizes]
    sizes = [size for size in sizes if any(size)] or [(1, 0, 0)[: len(struct)]]
    how = {"padding_struct": padding and {name: padding[name] for name in struct}}
    documents = real_grain.MapDataset.source(documents_of(sizes)).to_iter_dataset()
    expected = real_grain.experimental.FirstFitPackIterDataset(
        documents,
        length_struct=struct,
        num_packing_bins=len(sizes),
        shuffle_bins=False,
        **how,
    )
    found = [dict(row) for row in packed(sizes, struct, method="first_fit", **how)]
    for row in found:
        del row["text_loss_mask"]
    assert_same(found, expected)


@settings(max_examples=20)
@given(
    ranks=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4),
    cost=st.sampled_from([None, "tokens", "attention"]),
    seed=st.sampled_from([None, 3]),
    data=st.data(),
)
def test_ranks_that_change_deliver_each_global_batch_once(ranks, cost, seed, data):
    rows = packed(seed=seed, window=70, cost=cost, global_batch_size=4)
    steps = len(rows) // 4
    state: Any = {"next_index": 0}
    for count in ranks:
        start = state["next_index"]
        stop = data.draw(st.integers(start, steps))
        parts = []
        for rank in range(count):
            own = rows.deal(ShardOptions(rank, count)).batch(4 // count)
            iterator = iter(own.to_iter_dataset(ASK))
            iterator.set_state(state)
            parts.append([next(iterator) for _ in range(start, stop)])
        state = iterator.get_state()
        assert state == {"next_index": stop}
        for step, batches in enumerate(zip(*parts, strict=True), start):
            for name in STRUCT:
                found = np.concatenate([batch[name] for batch in batches]).tolist()
                expected = [rows[4 * step + i][name].tolist() for i in range(4)]
                assert sorted(found) == sorted(expected)


@pytest.mark.multiprocess
def test_any_number_of_workers_resumes_rows():
    def made(workers: int) -> Any:
        options = g.MultiprocessingOptions(num_workers=workers)
        batches = packed(seed=1).to_iter_dataset(ASK).batch(2)
        return batches.mp_prefetch(options, streams=2)

    expected = list(made(0))
    iterator = iter(made(2))
    assert_same([next(iterator) for _ in range(5)], expected[:5])
    again = iter(made(1))
    again.set_state(iterator.get_state())
    iterator.close()
    assert_same(again, expected[5:])


def test_ids_name_documents_and_their_tokens():
    ds = packed(seed=1).to_iter_dataset(ASK)
    iterator, documents = iter(ds), documents_of(SIZES)
    for _ in range(9):
        state = iterator.get_state()
        row = next(iterator)
        ids = ds.ids(state).tolist()
        for name in STRUCT:
            parts = [
                documents[key][name][begin:end]
                if name == "text"
                else documents[key][name][: None if begin == 0 else 0]
                for _, key, _, begin, end in ids
            ]
            used = row[name][row[f"{name}_segment_ids"] > 0]
            assert_same(np.concatenate(parts), used)
        assert_same([ds.replay(state)], [row])
    [count] = iterator.consumed().values()
    taken = [packed(seed=1)[i] for i in range(9)]
    assert count.tokens == len(cells_of(taken)["text"])


def test_copies_have_the_same_rows(tmp_path):
    rows = packed(seed=1, cost="attention", global_batch_size=4)
    assert_same(cloudpickle.loads(cloudpickle.dumps(rows)), rows)
    paths = {name: tmp_path / f"{name}.npy" for name in STRUCT}
    ds = g.MapDataset.source(documents_of(SIZES)).map(dict)
    lengths = {name: ds.measure_lengths(paths[name], feature=name) for name in STRUCT}
    same = ds.pack(STRUCT, lengths, seed=1, cost="attention", global_batch_size=4)
    assert_same(same, rows)


def test_features_without_lengths_are_cut_like_the_first_one():
    documents = [
        {"label": each["text"] * 2, "text": each["text"], "image": each["image"]}
        for each in documents_of(SIZES)
    ]
    lengths = lengths_of(SIZES)
    del lengths["sound"]
    struct = {"text": 16, "label": 16, "image": 6}
    for row in g.MapDataset.source(documents).pack(struct, lengths, cu_seqlens=17):
        assert_same(row["label"], row["text"] * 2)
        for name in ("segment_ids", "positions"):
            assert_same(row[f"label_{name}"], row[f"text_{name}"])
        bounds = row["text_cu_seqlens"]
        used = row["text_segment_ids"].astype(bool).sum()
        segments = row["text_segment_ids"].max()
        assert used in bounds[: segments + 1]
        assert (np.diff(bounds) >= 0).all()


def test_documents_without_tokens_are_no_segments():
    sizes = [(0, 1), (3, 1), (0, 1), (0, 1)]
    rows = packed(sizes, {"text": 3, "image": 6}, method="first_fit", cu_seqlens=4)
    assert [row["text_cu_seqlens"].tolist() for row in rows] == [[0, 3, 3, 3]]
    assert [row["text_segment_ids"].tolist() for row in rows] == [[2, 2, 2]]
    rows = packed(sizes[:1], {"text": 3, "image": 6}, cu_seqlens=2)
    assert [row["text_cu_seqlens"].tolist() for row in rows] == [[0, 3]]


def test_lengths_of_the_first_feature_may_be_known(tmp_path):
    documents = documents_of(SIZES)
    parts = [g.MapDataset.source(documents[i::2]) for i in range(2)]
    mix = g.MapDataset.mix(
        [part.map(dict) for part in parts],
        unit="tokens",
        lengths=[[each[0] for each in SIZES[i::2]] for i in range(2)],
        epochs=1,
    )
    images = [element["image"].shape[0] for element in mix]
    rows = mix.pack({"text": 16, "image": 6}, {"image": images})
    texts = [element["text"].shape[0] for element in mix]
    expected = mix.pack({"text": 16, "image": 6}, {"text": texts, "image": images})
    assert_same(rows, expected)
    assert_same(cloudpickle.loads(cloudpickle.dumps(rows)), expected)


def test_extra_features_belong_to_the_plan(tmp_path):
    lengths = lengths_of(SIZES)
    ds = g.MapDataset.source(documents_of(SIZES))
    loader = [
        iter(g.DataLoader(data_source=rows, sampler=g.SequentialSampler(9)))
        for rows in (
            packed(),
            ds.pack(STRUCT, lengths | {"sound": lengths["sound"][::-1]}),
        )
    ]
    with pytest.raises(ValueError, match="hash_of_lengths"):
        loader[1].set_state(loader[0].get_state())
    path = tmp_path / "rows"
    for struct in (STRUCT, STRUCT | {"sound": 20}, STRUCT):
        expected = packed(struct=struct)
        assert len(packed(struct=struct, counts_path=path)) == len(expected)
        assert_same(packed(struct=struct, counts_path=path), expected)


def test_long_extra_feature_raises_or_is_dropped():
    struct = STRUCT | {"image": 5}
    document = next(i for i, each in enumerate(SIZES) if each[1] == 6)
    text = f"image of document {document} must have at most 5 cells, .* got 6. Use"
    with pytest.raises(ValueError, match=text):
        packed(struct=struct)
    rows = packed(struct=struct, long_documents="drop")
    long = [each for each in SIZES if each[0] > 16 or each[1] > 5]
    counts = rows.pack_counts()
    assert counts.long_documents == counts.dropped_documents == len(long)
    assert counts.dropped_tokens == sum(each[0] for each in long)
    assert rows.plan.totals["documents"] == len(SIZES)


def test_document_of_another_length_raises():
    lengths = lengths_of(SIZES)
    number = next(i for i, each in enumerate(SIZES) if each[1] == 3)
    lengths["image"][number] = 2
    rows = g.MapDataset.source(documents_of(SIZES)).pack(STRUCT, lengths)
    text = rf"Document {number} must have 2 .*, got 3 in \['image'\]"
    with pytest.raises(ValueError, match=text):
        list(rows)


@pytest.mark.parametrize(
    ("struct", "lengths", "text"),
    [
        (16, {"text": [1]}, "must be an array of ints, because length_struct has no"),
        ({"text": 4}, {"a": [1]}, r"only features of length_struct, \['text'\], got"),
        ({"text": 4, "image": 5}, [1], "same length.* 4 for 'text' and 5 for 'image'"),
        ({"text": 4, "image": 5}, {"image": [1]}, "are not known before they"),
        ({"text": 4, "image": 0}, {"image": [1]}, "must be at least 1, got 0"),
        (
            {"text": 4, "image": 5},
            {"text": [1], "image": [1, 2]},
            r"lengths\['image'\] must have one length for each of the 1 documents",
        ),
        (
            {"text": 4, "image": 5},
            {"text": [1], "image": [0.5]},
            r"lengths\['image'\] must be an array of ints",
        ),
        (
            {"text": 4, "image": 5},
            {"text": [1], "image": [-1]},
            "image: lengths must be at least 0, got -1 for document 0",
        ),
    ],
)
def test_bad_argument_raises(struct, lengths, text):
    ds = g.MapDataset.source([{"text": np.ones(1), "image": np.ones(1)}])
    with pytest.raises((TypeError, ValueError), match=re.compile(text, re.DOTALL)):
        ds.pack(struct, lengths)
