"""Tests that DistributedSampler gives all ranks equally many full batches."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as g
from gristmill.errors import StateMismatch
from gristmill.samplers import DistributedSampler, IndexSampler, WithMask
from gristmill.sharding import ShardOptions
from support.dealing import deal_batches

WAYS = ["drop", "pad", "wrap"]


def loader(sampler, batch_size, records=None, **arguments):
    """Return a loader of batches of (element, mask). Elements are record keys."""
    return g.DataLoader(
        data_source=range(records or sampler.num_records),
        sampler=sampler,
        operations=[WithMask(sampler), g.Batch(batch_size)],
        **arguments,
    )


def plain(batches):
    return [
        [tuple(pair) for pair in zip(keys.tolist(), mask.tolist(), strict=True)]
        for keys, mask in batches
    ]


def orders(records, epochs, seed):
    """Return the order of all records in each epoch."""
    sampler = IndexSampler(records, shuffle=seed is not None, seed=seed)
    keys = sampler.record_keys(0, 1, records * epochs).reshape(epochs, records)
    return keys.tolist()


@given(
    how=st.sampled_from(WAYS),
    records=st.integers(1, 30),
    ranks=st.integers(1, 4),
    batch_size=st.integers(1, 4),
    epochs=st.integers(1, 3),
    seed=st.sampled_from([None, 0, 7]),
)
def test_batches_of_ranks_match_dealt_batches(
    how, records, ranks, batch_size, epochs, seed
):
    if how == "drop" and records < ranks * batch_size:
        return
    each = [
        deal_batches(order, ranks, batch_size, how)
        for order in orders(records, epochs, seed)
    ]
    for rank in range(ranks):
        sampler = DistributedSampler(
            records,
            ShardOptions(rank, ranks),
            batch_size,
            shuffle=seed is not None,
            num_epochs=epochs,
            seed=seed,
            remainder=how,
        )
        expected = [[*batch] for epoch in each for batch in epoch[rank]]
        found = loader(sampler, batch_size)
        assert plain(found) == expected
        assert len(found) == len(expected) == epochs * sampler.batches_per_epoch


@pytest.mark.parametrize(("how", "drop_last"), [("drop", True), ("wrap", False)])
@pytest.mark.parametrize("records", [2, 3, 12, 13])
def test_order_without_shuffle_matches_torch(how, drop_last, records):
    data = pytest.importorskip("torch.utils.data")
    for rank in range(3):
        if how == "drop" and records < 3:
            continue
        theirs = data.DistributedSampler(
            range(records), 3, rank, shuffle=False, drop_last=drop_last
        )
        ours = DistributedSampler(
            records, ShardOptions(rank, 3), num_epochs=1, remainder=how
        )
        assert ours.record_keys(rank, 3, len(ours) // 3).tolist() == list(theirs)


@pytest.mark.parametrize("how", WAYS)
def test_global_steps_do_not_depend_on_number_of_ranks(how):
    def steps(ranks):
        each = [
            loader(
                DistributedSampler(
                    50,
                    ShardOptions(rank, ranks),
                    24 // ranks,
                    shuffle=True,
                    num_epochs=2,
                    seed=3,
                    remainder=how,
                ),
                24 // ranks,
            )
            for rank in range(ranks)
        ]
        batches = [plain(batches) for batches in each]
        return [sorted(itertools.chain(*step)) for step in zip(*batches, strict=True)]

    alone = steps(1)
    assert len(alone) == (4 if how == "drop" else 6)
    assert steps(2) == steps(3) == steps(8) == alone


def test_batch_size_over_streams_gives_full_batches():
    shapes = set()
    for rank in range(2):
        sampler = DistributedSampler(
            37, ShardOptions(rank, 2), 3 * 4, num_epochs=2, remainder="wrap"
        )
        batches = plain(loader(sampler, 4, streams=3))
        shapes.add((len(batches), *{len(batch) for batch in batches}))
    # Each rank gets 24 of 48 records: 2 batches of 4 for each of 3 streams.
    assert shapes == {(12, 4)}


@pytest.mark.multiprocess
def test_worker_batches_and_resume_match_streams():
    sampler = DistributedSampler(
        23, ShardOptions(1, 2), 2 * 3, True, num_epochs=2, seed=5, remainder="pad"
    )
    expected = plain(loader(sampler, 3, streams=2))
    assert len(expected) == 8
    iterator = iter(loader(sampler, 3, worker_count=2))
    assert plain(itertools.islice(iterator, 3)) == expected[:3]
    state = iterator.get_state()
    assert plain(iterator) == expected[3:]
    for workers in (0, 2):
        iterator = iter(loader(sampler, 3, worker_count=workers))
        iterator.set_state(state)
        assert plain(iterator) == expected[3:]


@pytest.mark.parametrize("how", WAYS)
def test_resume_anywhere_gives_the_same_rest(how):
    sampler = DistributedSampler(
        11, ShardOptions(0, 2), 2, True, num_epochs=3, seed=1, remainder=how
    )
    expected = plain(loader(sampler, 2))
    iterator = iter(loader(sampler, 2))
    for given_before in range(len(expected) + 1):
        again = iter(loader(sampler, 2))
        again.set_state(iterator.get_state())
        assert plain(again) == expected[given_before:]
        next(iterator, None)


def test_state_of_other_remainder_policy_is_refused():
    made = [
        loader(DistributedSampler(9, batch_size=2, num_epochs=1, remainder=how), 2)
        for how in ("pad", "wrap")
    ]
    state = iter(made[0]).get_state()
    with pytest.raises(StateMismatch, match="remainder='pad'"):
        iter(made[1]).set_state(state)


def test_repr_shows_everything_that_decides_order():
    sampler = DistributedSampler(9, ShardOptions(1, 2), 2, True, 3, 4, "wrap")
    assert repr(sampler) == (
        "DistributedSampler(num_records=9, shard_options=ShardOptions(shard_index=1,"
        " shard_count=2, drop_remainder=False), batch_size=2, shuffle=True,"
        " num_epochs=3, seed=4, remainder='wrap')"
    )
    again = pickle.loads(pickle.dumps(sampler))
    assert repr(again) == repr(sampler)
    assert again.record_keys(1, 2, 6).tolist() == sampler.record_keys(1, 2, 6).tolist()


def test_very_many_records_are_dealt_out():
    records = 2**61 + 1
    sampler = DistributedSampler(
        records, ShardOptions(0, 4), 1024, True, 1, seed=3, remainder="pad"
    )
    assert len(sampler) == 2**61 + 4096
    first, last = sampler[0].record_key, sampler[records].record_key
    assert first == last != sampler[1].record_key
    assert [sampler.is_real(index) for index in (0, records - 1, records)] == [
        True,
        True,
        False,
    ]


def test_blocks_of_keys_match_single_keys():
    sampler = DistributedSampler(
        7, ShardOptions(1, 3), 2, True, num_epochs=4, seed=8, remainder="wrap"
    )
    keys = [sampler[index].record_key for index in range(len(sampler))]
    assert len(keys) == 4 * 12
    for step in (1, 2, 3, 5, 12, 13):
        count = len(range(2, len(keys), step))
        assert sampler.record_keys(2, step, count).tolist() == keys[2::step]


def test_random_numbers_differ_between_ranks_and_copies():
    sampler = DistributedSampler(
        3, ShardOptions(0, 2), 2, num_epochs=1, seed=5, remainder="wrap"
    )
    draws = {sampler[index].rng.random() for index in range(len(sampler))}
    assert len(draws) == len(sampler) == 4
    assert DistributedSampler(3, num_epochs=1)[0].rng is None


def test_mask_is_added_to_dicts_under_its_key():
    sampler = DistributedSampler(3, batch_size=2, num_epochs=1, remainder="pad")
    made = g.DataLoader(
        data_source={"x": np.arange(3)},
        sampler=sampler,
        operations=[WithMask(sampler, "real"), g.Batch(2)],
    )
    found = [{name: leaf.tolist() for name, leaf in batch.items()} for batch in made]
    assert found == [
        {"x": [0, 1], "real": [True, True]},
        {"x": [2, 0], "real": [True, False]},
    ]


@pytest.mark.parametrize(
    ("element", "key", "error", "text"),
    [
        (3, "real", TypeError, "elements that are dicts, got int"),
        ({"real": 1}, "real", ValueError, "must not be a key of elements, got 'real'"),
    ],
)
def test_mask_refuses_non_dict_or_existing_key(element, key, error, text):
    mask = WithMask(DistributedSampler(3), key)
    with pytest.raises(error, match=text):
        mask.map_with_index(0, element)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be an int, got float"),
        ({"remainder": "keep"}, ValueError, "one of 'drop', 'pad', 'wrap', got 'keep'"),
        ({"shuffle": True}, ValueError, "requires specifying a seed"),
        ({"num_epochs": 0}, ValueError, "number of epochs must be greater than 0"),
        ({"num_records": 0}, ValueError, "number of records must be greater than 0"),
        ({"shard_options": 3}, TypeError, "shard_options must be a ShardOptions"),
        ({"batch_size": 10}, ValueError, "batch of 10 for each of .* ranks, got 9"),
        (
            {
                "batch_size": 2**62,
                "shard_options": ShardOptions(0, 2),
                "remainder": "pad",
            },
            OverflowError,
            r"expected less than 2\*\*63",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        DistributedSampler(**{"num_records": 9, **arguments})


def test_mask_requires_distributed_sampler():
    with pytest.raises(TypeError, match="sampler must be a DistributedSampler, got In"):
        WithMask(IndexSampler(3))
    with pytest.raises(TypeError, match="key of a mask must be a str or None, got int"):
        WithMask(DistributedSampler(3), 1)


@pytest.mark.parametrize(
    ("batch_size", "streams", "warned"),
    [(8, 2, False), (16, 2, False), (4, 2, True), (8, 3, True), (1, 2, False)],
)
def test_loader_warns_of_other_batch_size_than_sampler(
    caplog, batch_size, streams, warned
):
    sampler = DistributedSampler(99, batch_size=batch_size, num_epochs=1)
    loader(sampler, 4, streams=streams)
    text = f"Pass batch_size={4 * streams} to the sampler"
    assert (text in caplog.text) == warned


def test_loader_must_have_ranks_of_its_sampler():
    sampler = DistributedSampler(9, ShardOptions(0, 2), num_epochs=1)
    with pytest.raises(ValueError, match=r"shard_count .* must be 2, .* got 3"):
        loader(sampler, 2, shard_options=ShardOptions(0, 3))
    other = loader(sampler, 2, shard_options=ShardOptions(1, 2))
    assert plain(other)[0] == [(1, True), (3, True)]


def test_index_past_last_epoch_is_out_of_range():
    sampler = DistributedSampler(5, ShardOptions(0, 2), num_epochs=1)
    assert len(sampler) == 4
    with pytest.raises(IndexError, match="Got index 4"):
        sampler[4]
    assert len(DistributedSampler(5)) == 2**63 - 1
