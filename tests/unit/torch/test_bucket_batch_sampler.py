"""Tests of BucketBatchSampler: ranks get equally many batches of similar lengths."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import data

import gristmill as g
from gristmill.torch import (
    BucketBatchSampler,
    DataLoader,
    StatefulDataLoader,
    WithMask,
)
from support.forked import of_workers

# torchdata calls a deprecated function of torch.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

BOUNDARIES, SIZES = [4, 9], [5, 3, 2]
LENGTHS = np.random.default_rng(1).integers(0, 12, 200)


def of_rank(rank, ranks, lengths=LENGTHS, epoch=0, **how):
    sampler = BucketBatchSampler(
        lengths, BOUNDARIES, SIZES, num_replicas=ranks, rank=rank, **how
    )
    sampler.set_epoch(epoch)
    return sampler


lengths_of_samples = st.lists(st.integers(0, 12), max_size=60)


@given(lengths=lengths_of_samples, drop_last=st.booleans())
def test_one_rank_without_shuffle_matches_dataset(lengths, drop_last):
    sampler = of_rank(0, 1, lengths, shuffle=False, drop_last=drop_last)
    ds = g.MapDataset.range(len(lengths)).bucket_by_sequence_length(
        lengths.__getitem__,
        BOUNDARIES,
        SIZES,
        drop_remainder=drop_last,
        batch_fn=list,
    )
    assert list(sampler) == list(ds)
    assert len(sampler) == len(list(ds))


@given(
    lengths=lengths_of_samples,
    ranks=st.integers(1, 4),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    how=st.sampled_from(["drop", "pad", "wrap"]),
    epoch=st.integers(0, 2),
)
def test_ranks_get_equally_many_batches_of_all_samples(
    lengths, ranks, shuffle, drop_last, how, epoch
):
    try:
        samplers = [
            of_rank(
                rank,
                ranks,
                lengths,
                epoch,
                shuffle=shuffle,
                drop_last=drop_last,
                remainder=how,
            )
            for rank in range(ranks)
        ]
    except ValueError:
        assert how == "drop"
        return
    each = [list(sampler) for sampler in samplers]
    assert {len(batches) for batches in each} == {len(samplers[0])}
    whole = [batch for batches in each for batch in batches]
    for batch in whole:
        (bucket,) = {
            int(np.searchsorted(BOUNDARIES, lengths[i % len(lengths)], "right"))
            for i in batch
        }
        assert len(batch) == SIZES[bucket] or (
            len(batch) < SIZES[bucket] and not drop_last
        )
    real = [i for batch in whole for i in batch if i < len(lengths)]
    if how != "wrap":
        assert len(real) == len({*real})
    if how == "drop":
        assert len(real) == sum(map(len, whole))
    elif not drop_last:
        assert {*real} == {*range(len(lengths))}


def test_step_of_all_ranks_mostly_has_one_bucket():
    each = [list(of_rank(rank, 4)) for rank in range(4)]
    mixed = 0
    for step in zip(*each, strict=True):
        found = {
            int(np.searchsorted(BOUNDARIES, LENGTHS[i], "right"))
            for batch in step
            for i in batch
        }
        mixed += len(found) > 1
    assert len(each[0]) == 18
    # The remainders of the three buckets may be mixed.
    assert mixed <= 3


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, ValueError), (2**63, ValueError), (1.0, TypeError)]
)
def test_invalid_epoch_is_refused(epoch, error):
    with pytest.raises(error, match="epoch must be"):
        of_rank(0, 1, epoch=epoch)


def test_order_depends_only_on_seed_and_epoch():
    first = list(of_rank(1, 2, seed=5, epoch=3))
    torch.manual_seed(99)
    assert list(of_rank(1, 2, seed=5, epoch=3)) == first
    again = pickle.loads(pickle.dumps(of_rank(1, 2, seed=5, epoch=3)))
    assert list(again) == list(again) == first
    assert list(of_rank(1, 2, seed=5, epoch=4)) != first
    assert list(of_rank(1, 2, seed=6, epoch=3)) != first


def test_dropped_samples_differ_between_epochs():
    seen = set()
    for epoch in range(20):
        for rank in range(4):
            sampler = of_rank(rank, 4, epoch=epoch, remainder="drop")
            seen |= {i for batch in sampler for i in batch}
    assert len(seen) == 200


def test_max_tokens_is_never_exceeded():
    sampler = BucketBatchSampler(LENGTHS, [4, 9, 12], max_tokens=24, seed=2)
    sizes = {len(batch) for batch in sampler}
    assert max(sizes) == 24 // 3
    for batch in sampler:
        assert len(batch) * LENGTHS[batch].max() <= 24
    assert sorted(i for batch in sampler for i in batch) == list(range(200))


class Rows(data.Dataset):
    """Rows with the lengths in LENGTHS."""

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        return torch.full((int(LENGTHS[index]),), index)


def padded(samples):
    rows, real = zip(*samples, strict=True)
    return torch.nn.utils.rnn.pad_sequence(rows, True, -1), torch.tensor(real)


def loader(kind, workers, rank):
    sampler = of_rank(rank, 4, seed=4, remainder="pad")
    rows = WithMask(Rows())
    options = of_workers(workers)
    return kind(rows, batch_sampler=sampler, collate_fn=padded, **options)


def plain(batches):
    return [(rows.tolist(), real.tolist()) for rows, real in batches]


@pytest.mark.multiprocess
def test_loader_gives_each_row_once_and_masks_padding():
    found = []
    for rank in range(4):
        batches = plain(loader(DataLoader, rank % 2, rank))
        assert len(batches) == 18
        for rows, real in batches:
            assert len({*real}) == 1
            found += [row[0] for row in rows if row and real[0]]
    found = [number for number in found if number >= 0]
    assert sorted(found) == np.flatnonzero(LENGTHS).tolist()


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_state_resumes_rest_of_its_epoch(workers):
    expected = plain(loader(StatefulDataLoader, workers, 1))
    first = loader(StatefulDataLoader, workers, 1)
    batches = iter(first)
    for _ in range(7):
        next(batches)
    again = loader(StatefulDataLoader, workers, 1)
    again.load_state_dict(first.state_dict())
    assert plain(again) == plain(batches) == expected[7:]


def test_ranks_are_read_from_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sampler = BucketBatchSampler(LENGTHS, BOUNDARIES, SIZES)
    assert (sampler.rank, sampler.num_replicas) == (1, 3)
    assert list(sampler) == list(of_rank(1, 3))
    monkeypatch.undo()
    alone = BucketBatchSampler(LENGTHS, BOUNDARIES, SIZES)
    assert (alone.rank, alone.num_replicas) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"lengths": [1.5]}, TypeError, r"ints of shape \(n,\).* dtype float64"),
        ({"lengths": [[1]]}, TypeError, r"got list of shape \(1, 1\)"),
        ({"lengths": [-1]}, ValueError, "must be at least 0, got -1"),
        ({"bucket_boundaries": [9, 4]}, ValueError, "must ascend"),
        ({"bucket_batch_sizes": None}, ValueError, "got neither"),
        (
            {"bucket_batch_sizes": None, "max_tokens": 99, "lengths": [9]},
            ValueError,
            "less than the last of bucket_boundaries, 9, got 9",
        ),
        ({"rank": 2, "num_replicas": 2}, ValueError, "got rank=2 and num_replicas=2"),
        ({"rank": 0.5}, TypeError, "rank must be an int, got float"),
        ({"seed": None}, TypeError, "seed must be an int, got NoneType"),
        ({"shuffle": 7}, TypeError, "shuffle must be True or False"),
        (
            {"remainder": "drop", "rank": 0, "num_replicas": 9},
            ValueError,
            "got 2 batches for 9 ranks",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, error, text):
    usual = {
        "lengths": [1, 2, 7],
        "bucket_boundaries": BOUNDARIES,
        "bucket_batch_sizes": SIZES,
    }
    with pytest.raises(error, match=text):
        BucketBatchSampler(**usual | arguments)


def test_no_samples_give_no_batches():
    assert list(of_rank(0, 2, [])) == []
    assert len(of_rank(0, 2, [], remainder="drop")) == 0
