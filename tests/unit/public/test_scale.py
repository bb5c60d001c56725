"""Tests the claims of docs/scale.md with a trillion virtual records."""

import functools
import json

import numpy as np
import pytest

import gristmill
from gristmill import _core
from gristmill.experimental import WindowShuffleMapDataset

grain = pytest.importorskip("grain")

N = 10**12
INT64_MAX = 2**63 - 1


class Virtual:
    """Returns its keys as records."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, key):
        return key

    def __repr__(self):
        return "Virtual()"


@pytest.mark.parametrize("seed", [0, 2**31])
def test_shuffle_matches_grain(seed):
    def shuffled(library):
        return library.MapDataset.range(N).shuffle(seed=seed).repeat(3)

    ours, theirs = shuffled(gristmill), shuffled(grain)
    assert len(ours) == len(theirs) == 3 * N
    rng = np.random.default_rng(0)
    probes = [0, N - 1, N, 3 * N - 1, *rng.integers(0, 3 * N, 200).tolist()]
    assert [ours[i] for i in probes] == [theirs[i] for i in probes]


def test_shuffle_gives_no_key_twice():
    # Drawing with replacement would repeat about eight keys.
    keys = np.empty(4_000_000, np.int64)
    _core.KeyPlan.range(N).shuffle(7).fill(N - len(keys), 1, keys)
    keys.sort()
    assert (keys[0] >= 0, keys[-1] < N) == (True, True)
    assert (np.diff(keys) > 0).all()


def test_shards_are_disjoint_and_complete():
    end = 0
    for shard in range(1_024):
        sampler = gristmill.samplers.IndexSampler(
            N,
            shard_options=gristmill.sharding.ShardOptions(shard, 1_024),
            num_epochs=1,
        )
        first, last = (sampler[i].record_key for i in (shard, N - 1_024 + shard))
        assert first == end
        end = last + 1
    assert end == N


def test_positions_reach_last_int64():
    plan = _core.KeyPlan.range(N).shuffle(2**32 - 1).repeat()
    for position in (N, INT64_MAX - N, INT64_MAX):
        epoch, offset = divmod(position, N)
        seed = (2**32 - 1 + epoch) % 2**32
        assert plan.key(position) == _core.index_shuffle(offset, N - 1, seed, 4)
    assert len(_core.KeyPlan.range(N).repeat(9_223_372)) == 9_223_372 * N
    with pytest.raises(OverflowError):
        _core.KeyPlan.range(N).repeat(9_223_373)


def test_mixture_gives_each_dataset_its_share():
    proportions = [3, 1, 7]
    first = N // 11 * 11 - 22
    components, positions = _core.Mixture(proportions).take(
        np.arange(first, first + 22)
    )
    for number, share in enumerate(proportions):
        begin = share * (first // 11)
        expected = np.arange(begin, begin + 2 * share)
        assert positions[components == number].tolist() == expected.tolist()


def test_state_is_one_position():
    def state(length, steps):
        sampler = gristmill.samplers.IndexSampler(
            length, shuffle=True, seed=0, num_epochs=1
        )
        loader = gristmill.DataLoader(data_source=Virtual(length), sampler=sampler)
        iterator = iter(loader)
        for _ in range(steps):
            next(iterator)
        return iterator.get_state()

    assert len(state(N, 5)) - len(state(1_000, 5)) == len(str(N)) - len("1000")
    assert json.loads(state(N, 5))["last_seen_indices"] == {"0": 4}
    dataset = gristmill.MapDataset.source(Virtual(N)).shuffle(seed=3)
    iterator = iter(dataset.to_iter_dataset())
    iterator.set_state({"next_index": N - 1})
    assert next(iterator) == dataset[N - 1]
    assert iterator.get_state() == {"next_index": N}


def test_record_is_read_from_its_file():
    asked = []

    def opener(parts):
        asked.extend(parts)
        raise LookupError("it is not there")

    reader = _core.RecordSet("all", [(0, N // 1_000)] * 1_000, opener)
    assert len(reader) == N
    for key in (0, N // 1_000 - 1, N // 1_000, N - 1):
        with pytest.raises(LookupError):
            reader.read(key)
    assert asked == [0, 0, 1, 999]


def test_windows_are_numbered_with_32_bits():
    make = functools.partial(WindowShuffleMapDataset, seed=0)
    source = gristmill.MapDataset.source(Virtual(N))
    with pytest.raises(TypeError, match="window 4310344827"):
        make(source, window_size=232)[N - 1]
    assert N - 233 <= make(source, window_size=233)[N - 1] < N
