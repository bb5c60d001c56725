"""shard gives each rank equally many elements; all ranks together have all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as g
from gristmill.experimental import ShapeDtypeStruct, get_element_spec
from gristmill.sharding import Remainder, ShardOptions
from support.dealing import deal_batches

WAYS = ["drop", "pad", "wrap"]
ASK = g.ReadOptions(0, 0)


@given(
    how=st.sampled_from(WAYS),
    length=st.integers(1, 30),
    ranks=st.integers(1, 4),
    batch_size=st.integers(1, 4),
    seed=st.sampled_from([None, 0, 7]),
)
def test_batches_of_ranks_match_reference(how, length, ranks, batch_size, seed):
    ds = g.MapDataset.range(length)
    if seed is not None:
        ds = ds.shuffle(seed)
    epochs = [
        deal_batches(
            [ds[epoch * length + i] for i in range(length)], ranks, batch_size, how
        )
        for epoch in range(3)
    ]
    for rank in range(ranks):
        options = ShardOptions(rank, ranks)
        part = ds.shard(options, how, batch_size=batch_size)
        assert len(part) == batch_size * len(epochs[0][rank])
        batches = part.repeat(3).batch(batch_size, batch_fn=tuple)
        expected = [batch for epoch in epochs for batch in epoch[rank]]
        if how != "pad":
            expected = [tuple(element for element, _ in batch) for batch in expected]
        assert list(batches.to_iter_dataset(ASK)) == expected


def test_ranks_have_equal_batch_counts():
    counts = {}
    for how in WAYS:
        parts = [
            g.MapDataset.range(103).shard(ShardOptions(r, 4), how, batch_size=8)
            for r in range(4)
        ]
        counts[how] = {len(part.batch(8)) for part in parts}
    assert counts == {"drop": {3}, "pad": {4}, "wrap": {4}}


def test_batch_size_of_all_streams_gives_full_batches():
    options = g.MultiprocessingOptions(num_workers=0)
    part = g.MapDataset.range(37).shard(ShardOptions(1, 2), "pad", batch_size=3 * 4)
    ds = part.to_iter_dataset(ASK).batch(4).mp_prefetch(options, streams=3)
    # 37 elements padded to 48 are 24 for a rank: 2 batches of 4 for each of 3 streams.
    batches = list(ds)
    assert [len(mask) for _, mask in batches] == [4] * 6
    numbers = [n for values, mask in batches for n in values[mask].tolist()]
    assert sorted(numbers) == [*range(1, 37, 2)]


@pytest.mark.multiprocess
@pytest.mark.parametrize("sequential", [False, True])
def test_workers_match_streams_and_resume(sequential):
    part = (
        g.MapDataset.range(23)
        .shuffle(3)
        .shard(ShardOptions(1, 2), "wrap", batch_size=8)
    )

    def made(workers):
        return part.to_iter_dataset(ASK).mp_prefetch(
            g.MultiprocessingOptions(num_workers=workers),
            sequential_slice=sequential,
            streams=2,
        )

    expected = list(made(0))
    assert sorted(expected) == sorted(part)
    iterator = iter(made(2))
    assert [next(iterator) for _ in range(3)] == expected[:3]
    again = iter(made(0))
    again.set_state(iterator.get_state())
    assert list(again) == list(iterator) == expected[3:]


@pytest.mark.parametrize("how", WAYS)
def test_every_state_resumes_exactly(how):
    ds = g.MapDataset.range(11).shuffle(2).shard(ShardOptions(1, 3), how, batch_size=2)
    ds = ds.repeat(2).to_iter_dataset(ASK)
    expected = list(ds)
    iterator = iter(ds)
    for position in range(len(expected) + 1):
        again = iter(ds)
        again.set_state(iterator.get_state())
        assert list(again) == expected[position:]
        next(iterator, None)


def test_mask_is_added_to_dicts_under_mask_key():
    ds = g.MapDataset.source({"x": np.arange(3)})
    ds = ds.shard(ShardOptions(0, 1), "pad", batch_size=2, mask_key="real").batch(2)
    found = [{name: leaf.tolist() for name, leaf in batch.items()} for batch in ds]
    assert found == [
        {"x": [0, 1], "real": [True, True]},
        {"x": [2, 0], "real": [True, False]},
    ]


def test_absent_elements_stay_absent():
    ds = g.MapDataset.range(5).filter(lambda x: x % 2 == 0)
    padded = ds.shard(ShardOptions(0, 1), "pad", batch_size=3)
    assert [padded[i] for i in range(6)] == [
        (0, True),
        None,
        (2, True),
        None,
        (4, True),
        (0, False),
    ]


def test_drop_returns_a_slice():
    ds = g.MapDataset.range(12).shuffle(1)
    drop = ds[:9].shard(ShardOptions(1, 2), Remainder.DROP, batch_size=2)
    assert type(drop) is type(ds[1::2])
    assert list(drop) == [ds[i] for i in (1, 3, 5, 7)]
    assert type(ds.shard(ShardOptions(1, 3), "wrap")) is type(drop)


def test_repr_names_rank_and_length():
    ds = g.MapDataset.range(5)
    wrapped = ds.shard(ShardOptions(1, 2), "wrap", batch_size=2)
    assert f"{wrapped}" == "WrapMapDataset(rank=1, ranks=2, length=4)"
    padded = ds.shard(ShardOptions(1, 2), "pad", mask_key=None)
    assert f"{padded}" == "PadMapDataset(rank=1, ranks=2, length=3, mask_key=None)"


class Sized(g.MapTransform):
    def map(self, element):
        return {"x": element}

    def output_spec(self, input_spec):
        return {"x": ShapeDtypeStruct((), np.dtype(np.int64))}


class Numbers(g.MapDataset):
    @property
    def _element_spec(self):
        return None

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


def test_element_spec_follows_remainder():
    ds = Numbers().map(Sized())
    of_element = {"x": ShapeDtypeStruct((), np.dtype(np.int64))}
    mask = ShapeDtypeStruct((), np.dtype(np.bool_))
    rank = ShardOptions(0, 2)
    assert get_element_spec(ds.shard(rank, "wrap")) == of_element
    assert get_element_spec(ds.shard(rank, "pad")) == (of_element, mask)
    keyed = ds.shard(rank, "pad", mask_key="real")
    assert get_element_spec(keyed) == {**of_element, "real": mask}


def test_error_names_the_record():
    ds = g.MapDataset.range(5).shard(ShardOptions(1, 2), "pad", mask_key="real")
    with pytest.raises(TypeError, match="elements that are dicts, got int") as raised:
        list(ds.to_iter_dataset(ASK))
    assert "record 1 (index 0)" in "\n".join(raised.value.__notes__)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3,), TypeError, "must be a ShardOptions: ShardOptions.*, got int"),
        ((ShardOptions(0, 2), "keep"), ValueError, "one of 'drop', 'pad', 'wrap'"),
        ((ShardOptions(0, 2), "drop", 0), ValueError, "batch_size must be at least 1"),
        ((ShardOptions(0, 2), "pad", 1, 3), TypeError, "a mask must be a str or None"),
        ((ShardOptions(0, 2), "wrap", 1, "m"), ValueError, "mask_key needs remainder"),
    ],
)
def test_invalid_arguments_are_named(arguments, error, text):
    names = ["shard_options", "remainder", "batch_size", "mask_key"]
    with pytest.raises(error, match=text):
        g.MapDataset.range(5).shard(**dict(zip(names, arguments, strict=False)))


def test_endless_dataset_is_rejected():
    with pytest.raises(ValueError, match=r"is infinite.* Call shard before repeat"):
        g.MapDataset.range(5).repeat().shard(ShardOptions(0, 2))
