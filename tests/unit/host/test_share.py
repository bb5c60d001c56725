"""Ranks that share workers get the outputs and the states of loaders of their own."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
import gristmill.host
from gristmill import MultiprocessingOptions, ShardOptions
from gristmill._dataset.nodes.slicing import slice_chain
from support.ranks import (
    close_all,
    new_name,
    new_pool,
    plain,
    share_all,
    take_in_turn,
)

LARGE = 5000  # Floats of an array that workers do not copy.


class Draw(gristmill.RandomMapTransform):
    def random_map(self, number, rng):
        return {"rows": np.full(LARGE, number, np.float32), "draw": rng.random(2)}


class KeepMost(gristmill.FilterTransform):
    def filter(self, element):
        return element["rows"][0] % 5 != 1


def make_loader(records, batch, filters, streams, shard=None, workers=2):
    operations = [Draw(), *([KeepMost()] if filters else []), gristmill.Batch(batch)]
    return gristmill.DataLoader(
        data_source=range(records),
        sampler=gristmill.IndexSampler(records, shuffle=True, num_epochs=1, seed=5),
        operations=operations,
        worker_count=workers,
        streams=streams,
        shard_options=shard or gristmill.NoSharding(),
    )


def make_chain(records, batch, filters):
    dataset = gristmill.MapDataset.range(records).seed(3).shuffle().random_map(Draw())
    dataset = dataset.filter(KeepMost()) if filters else dataset
    return dataset.to_iter_dataset().batch(batch)


def in_workers(chain, streams, workers=2):
    return chain.mp_prefetch(MultiprocessingOptions(workers), streams=streams)


def check_ranks(shared, own, stop):
    """Compare iterators that share workers with others; exchange states at `stop`."""
    ranks = range(len(shared))
    before = take_in_turn(shared, stop)
    expected = [[*map(plain, itertools.islice(iterator, stop))] for iterator in own]
    assert before == expected
    shared_states = [iterator.get_state() for iterator in shared]
    own_states = [iterator.get_state() for iterator in own]
    rest = [[*map(plain, iterator)] for iterator in own]
    assert take_in_turn(shared) == rest
    for rank in ranks:
        own[rank].set_state(shared_states[rank])
        shared[rank].set_state(own_states[rank])
    assert [[*map(plain, iterator)] for iterator in own] == rest
    assert take_in_turn(shared) == rest
    close_all([*shared, *own])


shapes = {
    "records": st.integers(20, 60),
    "batch": st.integers(1, 4),
    "filters": st.booleans(),
    "streams": st.integers(1, 3),
}


@settings(max_examples=2)
@given(ranks=st.integers(1, 3), stop=st.integers(0, 12), **shapes)
def test_loader_dealt_to_ranks_equals_sharded_loaders(ranks, stop, **shape):
    shared = share_all(lambda: make_loader(**shape), ranks)
    shards = [ShardOptions(rank, ranks) for rank in range(ranks)]
    own = [iter(make_loader(**shape, shard=shard, workers=0)) for shard in shards]
    check_ranks(shared, own, stop)


@settings(max_examples=2)
@given(ranks=st.integers(2, 3), stop=st.integers(0, 12), **shapes)
def test_loader_broadcast_gives_all_ranks_same_outputs(ranks, stop, **shape):
    shared = share_all(lambda: make_loader(**shape), ranks, mode="broadcast")
    own = [iter(make_loader(**shape, workers=0)) for _ in range(ranks)]
    check_ranks(shared, own, stop)


@settings(max_examples=2)
@given(ranks=st.integers(1, 3), stop=st.integers(0, 12), **shapes)
def test_chain_dealt_to_ranks_equals_sliced_chains(ranks, stop, streams, **shape):
    shared = share_all(lambda: in_workers(make_chain(**shape), streams), ranks)
    parts = [
        slice_chain(make_chain(**shape), rank, ranks, False) for rank in range(ranks)
    ]
    own = [iter(in_workers(part, streams, workers=0)) for part in parts]
    check_ranks(shared, own, stop)


@settings(max_examples=2)
@given(ranks=st.integers(2, 3), stop=st.integers(0, 12), **shapes)
def test_chain_broadcast_gives_all_ranks_same_outputs(ranks, stop, streams, **shape):
    def make():
        return in_workers(make_chain(**shape), streams)

    own = [
        iter(in_workers(make_chain(**shape), streams, workers=0)) for _ in range(ranks)
    ]
    check_ranks(share_all(make, ranks, mode="broadcast"), own, stop)


def test_chain_epochs_use_one_pool_with_own_draws():
    def make(epoch, workers=2):
        chain = in_workers(make_chain(30, 3, filters=True), 2, workers)
        return chain.at_epoch(epoch).map(lambda batch: batch["draw"])

    for mode, name in (("deal", new_name()), ("broadcast", new_pool())):
        seen = []
        for epoch in (0, 1):
            shared = share_all(lambda: make(epoch), 2, name, mode)  # noqa: B023
            (first, second) = take_in_turn(shared)
            assert (first == second) == (mode == "broadcast")
            close_all(shared)
            seen.append(first)
        assert seen[0] != seen[1]
        if mode == "broadcast":
            assert seen == [[*map(plain, make(epoch, 0))] for epoch in (0, 1)]


def test_sequential_slices_are_dealt_as_contiguous_pieces():
    def make():
        chain = gristmill.MapDataset.range(10).to_iter_dataset()
        return chain.mp_prefetch(MultiprocessingOptions(1), sequential_slice=True)

    shared = share_all(make, 2)
    assert [[*iterator] for iterator in shared] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_sharded_loader_with_own_shard_stays_unchanged():
    options = {"num_epochs": 1, "worker_count": 1}
    shard = ShardOptions(1, 2)
    loader = gristmill.load(range(6), shard_options=shard, **options)
    shared = gristmill.host.share(loader, name=new_pool(), rank=1, ranks=2)
    assert [*shared] == [3, 4, 5]
    assert [*loader] == [3, 4, 5]


def test_states_equal_those_of_unshared_loaders():
    (shared,) = share_all(lambda: make_loader(40, 2, True, 2), 1)
    own = iter(make_loader(40, 2, True, 2))
    for _ in range(3):
        assert shared.get_state() == own.get_state()
        assert plain(next(shared)) == plain(next(own))
    close_all([shared, own])
    chain = in_workers(make_chain(40, 2, True), 2)
    (shared,), own = share_all(lambda: chain, 1), iter(chain)
    for _ in range(3):
        assert shared.get_state() == own.get_state()
        assert plain(next(shared)) == plain(next(own))
    close_all([shared, own])


def test_state_continues_alone_and_with_other_ranks():
    first, second = share_all(lambda: make_loader(40, 2, True, 2), 2)
    take_in_turn([first, second], 3)
    state = first.get_state()
    close_all([first, second])
    alone = iter(make_loader(40, 2, True, 2, ShardOptions(0, 2), workers=0))
    alone.set_state(state)
    expected = [*map(plain, alone)]
    shard = ShardOptions(0, 2)
    (again,) = share_all(
        lambda: make_loader(40, 2, True, 2, shard), 1, mode="broadcast"
    )
    again.set_state(state)
    assert [*map(plain, again)] == expected


def test_rank_changes_its_batch_and_others_do_not_see_it():
    def make():
        return make_loader(8, 4, False, 1)

    first, second = share_all(make, 2, mode="broadcast")
    batch = next(first)
    before = plain(batch)
    batch["rows"][:] = -1
    assert plain(next(second)) == before
    assert (batch["rows"] == -1).all()
    close_all([first, second])


def test_newer_iterator_of_rank_ends_older_one():
    name = new_pool()

    def share():
        loader = gristmill.load(range(1000), num_epochs=1, worker_count=1)
        return gristmill.host.share(loader, name=name, rank=0, ranks=1)

    older, newer = share(), share()
    assert next(older) == 0
    assert [*newer] == [*range(1000)]
    with pytest.raises(gristmill.WorkerDied, match="uses rank 0 of the pool"):
        list(older)
    close_all([older, newer])


def test_pool_begins_again_for_another_loader_after_all_left():
    name = new_name()
    for records in (4, 6):
        loader = gristmill.load(range(records), num_epochs=1, worker_count=1)
        shared = gristmill.host.share(loader, name=name, rank=0, ranks=1)
        assert [*shared] == [*range(records)]
        shared.close()


def test_set_workers_keeps_outputs_and_order():
    loader = make_loader(40, 2, False, 2)
    (shared,) = share_all(lambda: loader, 1)
    outputs = take_in_turn([shared], 4)[0]
    shared.set_workers(3)
    outputs += take_in_turn([shared])[0]
    assert outputs == [*map(plain, make_loader(40, 2, False, 2, workers=0))]
    shared.close()


@pytest.mark.parametrize("given_by", ["load", "sampler", "loader"])
def test_sharded_loader_of_rank_is_unchanged(given_by):
    def make(shard, workers=1):
        sharded = given_by == "sampler"
        if given_by == "load":
            return gristmill.load(
                range(20),
                shuffle=True,
                seed=1,
                num_epochs=1,
                shard_options=shard,
                worker_count=workers,
            )
        sampler = gristmill.IndexSampler(
            20, shard if sharded else gristmill.NoSharding(), True, 1, 1
        )
        return gristmill.DataLoader(
            data_source=range(20),
            sampler=sampler,
            worker_count=workers,
            shard_options=None if sharded else shard,
        )

    name = new_pool()
    shards = [ShardOptions(rank, 2) for rank in range(2)]
    shared = [
        gristmill.host.share(make(shard), name=name, rank=rank, ranks=2)
        for rank, shard in enumerate(shards)
    ]
    own = [iter(make(shard)) for shard in shards]
    check_ranks(shared, own, 3)


def test_load_is_dealt_like_load_with_shard_options():
    def make(shard, workers=1):
        return gristmill.load(
            range(21),
            shuffle=True,
            seed=1,
            num_epochs=1,
            shard_options=shard,
            worker_count=workers,
        )

    shared = share_all(lambda: make(gristmill.NoSharding()), 2)
    own = [iter(make(ShardOptions(rank, 2))) for rank in range(2)]
    check_ranks(shared, own, 4)
