"""Packed rows in chains: fields, workers, token sources, ids and errors."""

from __future__ import annotations

import itertools
import pathlib
import re
import struct
from typing import Any

import cloudpickle
import numpy as np
import pytest
import transformers

import gristmill as g
from gristmill import batching
from gristmill.sharding import ShardOptions

ASK = g.ReadOptions(0, 0)
RNG = np.random.default_rng(3)
LENGTHS = np.clip(RNG.lognormal(2, 1, 300), 1, 60).astype(np.int64)
DOCUMENTS = [RNG.integers(1, 1000, n).astype(np.int32) for n in LENGTHS]


def source(documents: Any = DOCUMENTS) -> Any:
    return g.MapDataset.source(documents)


def rows(**how: Any) -> Any:
    return source().pack(16, LENGTHS, seed=5, window=100, **how)


def assert_same(found: Any, expected: Any) -> None:
    np.testing.assert_equal(list(found), list(expected))


def test_selections_orders_and_batches_are_those_of_the_rows():
    ds = rows()
    each = [ds[i] for i in range(len(ds))]
    assert_same(ds[3:20:4], each[3:20:4])
    assert_same(ds[[4, 0, 4]], [each[4], each[0], each[4]])
    assert_same(ds.shard(ShardOptions(1, 3)), each[1 : len(each) // 3 * 3 : 3])
    assert_same(ds.repeat(2), each * 2)
    order = [*g.MapDataset.range(len(ds)).shuffle(9)]
    assert_same(ds.shuffle(9), [each[i] for i in order])
    batch = ds.batch(4)[2]
    assert_same(batch["tokens"], [row["tokens"] for row in each[8:12]])
    assert_same([ds[-1], ds[len(ds)]], [each[-1], each[0]])
    assert_same([cloudpickle.loads(cloudpickle.dumps(ds))[7]], [each[7]])


@pytest.mark.parametrize("dtype", [np.uint16, ">i4"])
def test_batches_are_stacks_of_their_rows(dtype):
    # Rows of a byte order that stacking would change are batched singly.
    documents = [document.astype(dtype) for document in DOCUMENTS]
    packed = source(documents).pack(
        16, LENGTHS, seed=5, cu_seqlens=17, padding_struct=7, global_batch_size=4
    )
    dealt = packed.deal(ShardOptions(1, 2))
    masked = packed.shard(ShardOptions(1, 3), remainder="pad", mask_key="mask")
    assert len(packed) % 3  # The last batch is smaller.
    for ds in (packed, packed.shuffle(3)[::2], dealt, packed.repeat(2), masked):
        each = [ds[i] for i in range(len(ds))]
        expected = [batching.make_batch(each[i : i + 3]) for i in range(0, len(ds), 3)]
        found = [*ds.batch(3)]
        assert_same(found, expected)
        for key, leaf in expected[0].items():
            assert found[0][key].dtype == leaf.dtype


def test_batches_of_several_dtypes_are_stacks_of_their_rows():
    documents = [np.arange(9, dtype=[np.int32, np.int64][i > 4]) for i in range(8)]
    ds = source(documents).pack(10, [9] * 8)
    batch = ds.batch(8)[0]["tokens"]
    assert batch.dtype == np.int64
    assert_same(batch, [row["tokens"] for row in ds])


def test_empty_documents_do_not_change_the_dtype():
    documents = [np.array([]), np.array([3, 4], np.uint16), np.array([])]
    ds = source(documents).pack(5, [0, 2, 0])
    assert ds[0]["tokens"].dtype == ds.batch(1)[0]["tokens"].dtype == np.uint16
    assert_same(ds[0]["tokens"], [3, 4, 0, 0, 0])


def test_data_loader_reads_rows():
    ds = rows()
    sampler = g.SequentialSampler(len(ds), g.NoSharding())
    loader = g.DataLoader(data_source=ds, sampler=sampler)
    assert_same(loader, ds)


@pytest.mark.multiprocess
@pytest.mark.parametrize("sequential", [False, True])
def test_any_number_of_workers_resumes_rows(sequential):
    def made(workers: int) -> Any:
        options = g.MultiprocessingOptions(num_workers=workers)
        batches = rows(num_epochs=2).to_iter_dataset(ASK).batch(3)
        return batches.mp_prefetch(options, sequential_slice=sequential, streams=2)

    expected = list(made(0))
    iterator = iter(made(2))
    assert_same([next(iterator) for _ in range(9)], expected[:9])
    again = iter(made(1))
    again.set_state(iterator.get_state())
    iterator.close()
    assert_same(again, expected[9:])


def test_features_of_dicts_have_the_same_spans():
    ds = source([{"text": x, "label": x.astype("f4"), "id": 3} for x in DOCUMENTS])
    struct = {"text": 16, "label": 16}
    found = ds.pack(struct, LENGTHS, padding_struct={"text": 7, "label": None}, seed=5)
    for row, expected in zip(found, source().pack(16, LENGTHS, seed=5), strict=True):
        assert list(row) == list(found[0])
        assert row.keys() == {
            *("text", "text_segment_ids", "text_positions", "text_loss_mask"),
            *("label", "label_segment_ids", "label_positions"),
        }
        used = expected["tokens_segment_ids"] > 0
        assert_same(row["text"], np.where(used, expected["tokens"], 7))
        assert_same(row["label"], np.where(used, expected["tokens"], 0))
        assert row["label"].dtype == np.float32
        for feature in ("text", "label"):
            name = "segment_ids"
            assert_same(row[f"{feature}_{name}"], expected[f"tokens_{name}"])
        assert_same(row["text_loss_mask"], expected["tokens_loss_mask"])
        row["text_positions"][:] = 5
        assert_same(row["label_positions"], expected["tokens_positions"])


def test_cells_may_be_arrays():
    ds = source([np.stack([x, x + 1], axis=1) for x in DOCUMENTS])
    row = ds.pack(16, LENGTHS)[4]
    assert row["tokens"].shape == (16, 2)
    assert_same(row["tokens"][:, 0], source().pack(16, LENGTHS)[4]["tokens"])


def test_bounds_and_loss_mask_match_transformers():
    collate = transformers.DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_tensors="np"
    )
    ds = rows(cu_seqlens=18)
    spans = ds.spans(np.arange(len(ds)))
    for i, row in enumerate(ds):
        part = slice(spans.offsets[i], spans.offsets[i + 1])
        features = [
            {"input_ids": DOCUMENTS[document][begin:end]}
            for document, begin, end in zip(
                spans.documents[part], spans.begins[part], spans.ends[part], strict=True
            )
        ]
        expected = collate(features)
        used = expected["input_ids"].size
        assert_same(row["tokens"][:used], expected["input_ids"][0])
        assert_same(row["tokens_positions"][:used], expected["position_ids"][0])
        assert_same(row["tokens_loss_mask"][:used], expected["labels"][0] != -100)
        bounds = [*expected["cu_seq_lens_q"].tolist(), *[16] * 18][:18]
        assert row["tokens_cu_seqlens"].tolist() == bounds
        assert row["tokens_cu_seqlens"].dtype == np.int32
        assert row["tokens_max_seqlen"] == max(expected["max_length_q"], 16 - used)
    batch = ds.batch(3)[0]
    # The bounds of a batch whose rows are laid end to end.
    bounds = (batch["tokens_cu_seqlens"] + 16 * np.arange(3)[:, None]).ravel()
    assert (np.diff(bounds) >= 0).all()
    assert bounds[-1] == 48


def write_megatron(folder: pathlib.Path) -> str:
    prefix = str(folder / "train")
    np.concatenate(DOCUMENTS).tofile(f"{prefix}.bin")
    count = len(DOCUMENTS)
    ends = 4 * np.cumsum(LENGTHS)
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, count, count + 1)
    index += LENGTHS.astype("<i4").tobytes() + (ends - 4 * LENGTHS).tobytes()
    index += np.arange(count + 1).tobytes()
    pathlib.Path(f"{prefix}.idx").write_bytes(index)
    return prefix


def test_token_sources_give_lengths_and_parts(tmp_path, monkeypatch):
    tokens = g.sources.MegatronDataSource(write_megatron(tmp_path))
    ds = g.MapDataset.source(tokens)
    monkeypatch.setattr(type(tokens), "read_block", None)  # No document is read whole.
    assert_same(ds.pack(16, seed=5, window=100), rows())
    assert_same(ds.pack(16, LENGTHS, seed=5, window=100), rows())
    for select in (lambda ds: ds[40:9:-3], lambda ds: ds.shuffle(4)):
        order = [*select(g.MapDataset.range(len(DOCUMENTS)))]
        expected = source([DOCUMENTS[i] for i in order])
        assert_same(select(ds).pack(16), expected.pack(16, LENGTHS[order]))
    with pytest.raises(ValueError, match=r"lengths\[2\] must be .*, got 0"):
        ds.pack(16, np.where(np.arange(len(ds)) == 2, 0, LENGTHS))
    found = cloudpickle.loads(cloudpickle.dumps(ds.pack(16, seed=5, window=100)))
    assert_same(found, rows())


def test_random_steps_before_pack_differ_in_each_epoch():
    ds = source([np.zeros(n) for n in LENGTHS[:20]]).seed(1)
    noisy = ds.random_map(lambda x, rng: x + rng.integers(1, 1 << 40))

    def values(rows: Any) -> Any:
        return {row["tokens"].max() for row in rows}

    twice = noisy.pack(64, LENGTHS[:20], num_epochs=2)
    first = noisy.pack(64, LENGTHS[:20])
    assert values(twice[: len(first)]) == values(first)
    assert values(twice[len(first) :]).isdisjoint(values(first))
    assert values(first.repeat(2)[len(first) :]) == values(twice[len(first) :])
    with pytest.raises(ValueError, match="Leave the shuffle out"):
        noisy.shuffle(1).pack(64, LENGTHS[:20])


def test_ids_name_documents_and_spans():
    ds = rows().shuffle(2).batch(2).to_iter_dataset(ASK)
    iterator = iter(ds)
    for _ in range(3):
        state = iterator.get_state()
        batch = next(iterator)
        assert_same(ds.replay(state)["tokens"], batch["tokens"])
        found = [
            DOCUMENTS[key][begin:end].tolist()
            for _, key, _, begin, end in ds.ids(state).tolist()
        ]
        used = batch["tokens"][batch["tokens_segment_ids"] > 0]
        assert [*itertools.chain(*found)] == used.tolist()


def test_ids_of_dealt_rows_pass_through_maps():
    ds = source().map(np.copy).pack(16, LENGTHS, global_batch_size=4)
    own = ds.deal(ShardOptions(1, 2)).to_iter_dataset(ASK)
    state = {"next_index": 1}
    expected = ds.to_iter_dataset().ids({"next_index": 3})[0].tolist()
    assert own.ids(state)[0].tolist() == expected


@pytest.mark.multiprocess
def test_workers_and_ranks_may_change_together():
    ds = rows(cost="attention", global_batch_size=8)
    found: list[Any] = []
    state = None
    for ranks, workers, stop in ((2, 2, 3), (4, 1, 5), (1, 0, 6)):
        parts, states = [], []
        for rank in range(ranks):
            batches = ds.deal(ShardOptions(rank, ranks)).batch(8 // ranks)
            options = g.MultiprocessingOptions(num_workers=workers)
            stream = batches.to_iter_dataset(ASK).mp_prefetch(options, streams=1)
            iterator = iter(stream)
            if state is not None:
                iterator.set_state(state)
            parts += [next(iterator)["tokens"] for _ in range(len(found), stop)]
            states.append(iterator.get_state())
            iterator.close()
        state = states[0]
        assert all(each == state for each in states)
        steps = stop - len(found)
        found += [np.concatenate(parts[step::steps]) for step in range(steps)]
    for step, batch in enumerate(found):
        expected = [row["tokens"].tolist() for row in ds[8 * step : 8 * step + 8]]
        assert sorted(batch.tolist()) == sorted(expected)


def test_data_loader_rejects_states_of_other_lengths():
    def loader(ds: Any) -> Any:
        sampler = g.SequentialSampler(100, g.NoSharding())
        return iter(g.DataLoader(data_source=ds, sampler=sampler))

    state = loader(rows()).get_state()
    loader(rows()).set_state(state)
    shorter = source([x[:9] for x in DOCUMENTS]).pack(16, LENGTHS.clip(max=9), seed=5)
    with pytest.raises(ValueError, match="hash_of_lengths"):
        loader(shorter).set_state(state)


def test_document_of_another_length_raises():
    ds = source([*DOCUMENTS[:4], DOCUMENTS[4][:-1]])
    found = ds.pack(64, LENGTHS[:5])
    text = (
        f"Document 4 must have {LENGTHS[4]} tokens, .* got {LENGTHS[4] - 1} in "
        r"\['tokens'\]"
    )
    with pytest.raises(ValueError, match=text):
        list(found)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"lengths": LENGTHS[1:]}, "one length for each of the 300 documents, got 299"),
        ({"lengths": LENGTHS.astype(float)}, "must be an array of ints"),
        ({"lengths": -LENGTHS}, "lengths must be at least 0, got -"),
        ({"lengths": None}, "measure_lengths"),
        ({"length_struct": 0}, "must be at least 1, got 0"),
        ({"length_struct": 2.5}, "must be an int, got 2.5"),
        ({"length_struct": {}}, "at least one feature"),
        ({"length_struct": {"a": 4, "b": 5}}, "same length.* 4 for 'a' and 5 for 'b'"),
        ({"method": "worst_fit"}, 'must be one of "best_fit".* got "worst_fit"'),
        ({"long_documents": "keep"}, 'must be one of "cut", "drop", got "keep"'),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 1 << 32}, "seed must be less than"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"num_epochs": 0}, "num_epochs must be at least 1, got 0"),
        ({"cu_seqlens": 1}, "cu_seqlens must be at least 2, got 1"),
        ({"cost": "time", "global_batch_size": 2}, "cost must be 'tokens'"),
        ({"cost": "tokens"}, "cost needs global_batch_size"),
        ({"cost": lambda n: -n, "global_batch_size": 2}, "finite number of at least 0"),
        ({"global_batch_size": 0}, "global_batch_size must be at least 1"),
        ({"nonsense": 1}, "unexpected keyword argument 'nonsense'"),
    ],
)
def test_bad_argument_raises(how, text):
    with pytest.raises((TypeError, ValueError), match=re.compile(text, re.DOTALL)):
        source().pack(**({"length_struct": 16, "lengths": LENGTHS} | how))


def test_wrong_place_in_a_chain_raises():
    with pytest.raises(ValueError, match=r"pack cannot follow MapDataset\.filter"):
        source().filter(len).pack(16, LENGTHS)
    with pytest.raises(TypeError, match="deal must follow pack"):
        source().deal(ShardOptions(0, 1))
    with pytest.raises(ValueError, match="deal needs to know how many rows"):
        rows().deal(ShardOptions(0, 1))
    with pytest.raises(ValueError, match="not divisible by shard count 3"):
        rows(global_batch_size=4).deal(ShardOptions(0, 3))
    with pytest.raises(ValueError, match="needs a chain with pack"):
        source().pack_counts()
    with pytest.raises(KeyError, match=r"keys \['text'\]"):
        source().pack({"text": 16}, LENGTHS)[0]
    with pytest.raises(ValueError, match="of a document must be an array, got 1"):
        source([1.0]).pack(8, [1])[0]
    with pytest.raises(ValueError, match="cu_seqlens must be at least 5, got 2"):
        source([np.ones(2)] * 3).pack(8, [2, 2, 2], cu_seqlens=2)[0]


def test_counts_path_keeps_the_number_of_rows(tmp_path):
    path = tmp_path / "counts" / "rows"
    expected = len(rows())
    for _ in range(2):
        assert len(rows(counts_path=path)) == expected
        assert path.is_file()
    ds = rows(counts_path=path, num_epochs=2)  # Another plan replaces the file.
    assert_same(ds, rows(num_epochs=2))
    assert_same(rows(counts_path=str(path)), rows())


def test_lengths_that_change_later_have_no_effect():
    lengths = LENGTHS.copy()
    ds = source().pack(16, lengths, seed=5, window=100)
    lengths[:] = 7
    assert_same(ds, rows())


def test_no_documents_make_no_rows():
    assert len(source([]).pack(16, [])) == 0
    assert len(source([np.ones(0)]).pack(16, [0])) == 0
    assert list(source([np.ones(20)]).pack(16, [20], long_documents="drop")) == []
