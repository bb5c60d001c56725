"""Chains recompute an output from the state before it, and return its record ids."""

import threading

import numpy as np
import pytest

import gristmill as grain

Iter = grain.experimental
NONE = grain.MultiprocessingOptions(num_workers=0)


class Numbers:
    """Serves 100 * `number` + index for 17 indices."""

    def __init__(self, number):
        self.number = number

    def __len__(self):
        return 17

    def __getitem__(self, index):
        return 100 * self.number + index


def source(number=0):
    return grain.MapDataset.source(Numbers(number))


class Twice(grain.experimental.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element):
        return [element] * (1 + element % 2)


class Shifted(grain.MapDataset):
    """A user's dataset: its element i is the parent's element i + 1."""

    def __len__(self):
        return len(self._parent) - 1

    def __getitem__(self, index):
        return self._parent[index + 1]


def tokens(element):
    return {"t": np.full(element % 4 + 1, element + 1)}


def refusing(element):
    if element % 5 == 2:
        raise ValueError(element)
    return element


def lengths(ds):
    return ds.bucket_by_sequence_length(
        lambda x: x["t"].size,
        [3],
        [2, 3],
        batch_fn=lambda xs: [x["t"][0] - 1 for x in xs],
    )


def mixed(ds=None):
    return grain.MapDataset.mix([source(0).shuffle(1), source(1)], [1, 2])


def first_of_rows(row):
    """Return the numbers of the elements in a packed row, or in a batch of rows."""
    cells = row["t"].ravel()
    return np.array(list(dict.fromkeys(cells[cells > 0].tolist()))) - 1


def packed(kind, ds):
    return kind(ds.map(tokens), length_struct={"t": 9}, num_packing_bins=2)


# Chains whose outputs contain the numbers of all their records.
CHAINS = {
    "batch": lambda: source().shuffle(3).to_iter_dataset().batch(4),
    "batches by index": lambda: source().shuffle(3).batch(4).to_iter_dataset(),
    "elements": lambda: mixed().to_iter_dataset(),
    "map": lambda: mixed().map(int).to_iter_dataset().map(int).batch(3),
    "indices": lambda: (
        mixed()
        .map_with_index(lambda index, x: x)
        .to_iter_dataset()
        .map_with_index(lambda index, x: x)
        .batch(3)
    ),
    "random": lambda: (
        mixed()
        .random_map(lambda x, rng: x + 0 * rng.integers(5), seed=1)
        .to_iter_dataset()
        .random_map(lambda x, rng: x + 0 * rng.integers(5), seed=1)
        .batch(3)
    ),
    "filter": lambda: (
        mixed()
        .filter(lambda x: x % 3)
        .to_iter_dataset()
        .filter(lambda x: x % 2)
        .batch(3)
    ),
    "blocks": lambda: (
        mixed()
        .block_map(lambda xs: xs, 4)
        .to_iter_dataset()
        .block_map(lambda xs: np.array(xs), 3)
        .batch(2)
    ),
    "splits": lambda: Iter.FlatMapIterDataset(
        source().apply(Twice()).to_iter_dataset(), Twice()
    ).batch(3),
    "absent": lambda: (
        source()
        .map(lambda x: None if x % 4 == 0 else x)
        .to_iter_dataset()
        .map(lambda x: x)
        .batch(3)
    ),
    "epochs": lambda: source().shuffle(1).repeat(3).to_iter_dataset().batch(4),
    "at an epoch": lambda: source().shuffle(1).to_iter_dataset().batch(4).at_epoch(2),
    "repeated": lambda: Iter.RepeatIterDataset(source().to_iter_dataset(), 2).batch(5),
    "cached": lambda: Iter.CacheIterDataset(source().to_iter_dataset()).batch(5),
    "limited": lambda: Iter.LimitIterDataset(source().to_iter_dataset(), 7).batch(2),
    "sliced": lambda: source()[3::2][[2, 4, 0, 5]].to_iter_dataset().batch(2),
    "sharded": lambda: (
        source()
        .shard(grain.ShardOptions(1, 3), remainder="wrap")
        .to_iter_dataset()
        .batch(2)
    ),
    "concatenated": lambda: (
        grain.MapDataset.concatenate([source(0), source(1)]).to_iter_dataset().batch(6)
    ),
    "mixed": lambda: grain.IterDataset.mix(
        [source(0).to_iter_dataset(), source(1).to_iter_dataset()], [2, 1]
    ).batch(4),
    "interleaved": lambda: Iter.InterleaveIterDataset(
        [source(number) for number in range(4)], cycle_length=2
    ).batch(3),
    "window": lambda: Iter.WindowShuffleIterDataset(
        source().to_iter_dataset(), window_size=5, seed=1
    ).batch(3),
    "zip": lambda: (
        grain.MapDataset.zip([source(0), source(1).shuffle(1)])
        .to_iter_dataset()
        .batch(2)
    ),
    "zip behind": lambda: grain.IterDataset.zip(
        [source(0).to_iter_dataset(), source(1).to_iter_dataset()]
    ).batch(2),
    "threads": lambda: Iter.ThreadPrefetchIterDataset(
        mixed().to_iter_dataset().batch(3), prefetch_buffer_size=2
    ),
    "bad records": lambda: source().map(refusing).to_iter_dataset().on_error("skip"),
    "substitutes": lambda: (
        source().map(refusing).to_iter_dataset().on_error("substitute").batch(3)
    ),
    "buckets": lambda: lengths(mixed().map(tokens).to_iter_dataset()),
    "first fit": lambda: packed(
        Iter.FirstFitPackIterDataset, mixed().to_iter_dataset()
    ),
    "best fit": lambda: packed(Iter.BestFitPackIterDataset, mixed().to_iter_dataset()),
    "laid end to end": lambda: Iter.ConcatThenSplitIterDataset(
        mixed().to_iter_dataset().map(tokens), length_struct={"t": 5}
    ),
    "batched rows": lambda: packed(
        Iter.FirstFitPackIterDataset, mixed().to_iter_dataset()
    ).batch(2),
    "rebatched rows": lambda: Iter.RebatchIterDataset(
        packed(Iter.FirstFitPackIterDataset, mixed().to_iter_dataset()).batch(2),
        batch_size=3,
    ),
    "streams": lambda: mixed().to_iter_dataset().batch(2).mp_prefetch(NONE, streams=3),
    "mapped streams": lambda: (
        mixed()
        .to_iter_dataset()
        .filter(lambda x: x % 3)
        .mp_prefetch(NONE, streams=2)
        .map(lambda x: x)
        .batch(3)
    ),
    "pieces": lambda: (
        mixed()
        .to_iter_dataset()
        .batch(2)
        .mp_prefetch(NONE, streams=3, sequential_slice=True)
    ),
    "parallel threads": lambda: Iter.multithread_prefetch(
        source().to_iter_dataset().batch(2), 2, buffer_size=1
    ),
}


def numbers_in(output):
    if isinstance(output, dict):
        return first_of_rows(output).tolist()
    if isinstance(output, tuple):
        return np.stack(output, axis=1).ravel().tolist()
    return np.ravel(output).tolist()


def numbers_of(ids):
    return (100 * ids["source"] + ids["key"]).tolist()


@pytest.mark.parametrize("name", CHAINS)
def test_replay_and_ids_match_each_output(name):
    ds = CHAINS[name]()
    iterator = iter(ds)
    count = 0
    while True:
        state = iterator.get_state()
        output = next(iterator, None)
        if output is None:
            break
        count += 1
        np.testing.assert_equal(ds.replay(state), output)
        ids = ds.ids(state)
        expected = numbers_in(output)
        if name == "substitutes":  # An output may contain an element twice.
            assert sorted(set(numbers_of(ids))) == sorted(set(expected))
        else:
            assert numbers_of(ids) == expected
    assert count > 1
    for compute in (ds.replay, ds.ids):
        with pytest.raises(StopIteration):
            compute(state)


@pytest.mark.multiprocess
@pytest.mark.parametrize("keeps", [int, lambda x: x % 3 != 0])
def test_replay_of_worker_outputs_runs_in_this_process(keeps):
    ds = mixed().to_iter_dataset().filter(keeps).batch(3)
    made = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    iterator = iter(made)
    threads = threading.active_count()
    for _ in range(4):
        state = iterator.get_state()
        output = next(iterator)
        assert made.replay(state).tolist() == output.tolist()
        assert numbers_of(made.ids(state)) == output.tolist()
    iterator.close()
    assert threading.active_count() <= threads


def test_branches_of_one_source_share_its_number():
    shared = source()
    parts = [shared.shuffle(1), shared.shuffle(2)]
    ds = grain.MapDataset.concatenate(parts).to_iter_dataset().batch(34)
    ids = ds.ids(iter(ds).get_state())
    assert set(ids["source"].tolist()) == {0}
    assert sorted(ids["key"].tolist()) == sorted([*range(17)] * 2)


@pytest.mark.parametrize("ds", [source(), grain.MapDataset.range(17)])
def test_thread_parts_share_the_number_of_their_source(ds):
    ds = Iter.multithread_prefetch(ds.to_iter_dataset(), 3, buffer_size=1).batch(17)
    ids = ds.ids(iter(ds).get_state())
    assert ids[["source", "key"]].tolist() == [(0, number) for number in range(17)]


def test_user_dataset_counts_as_a_source():
    ds = Shifted(source().shuffle(1)).to_iter_dataset().batch(3)
    ids = ds.ids(iter(ds).get_state())
    assert ids[["source", "key"]].tolist() == [(0, 0), (0, 1), (0, 2)]


ABSENT = source().filter(lambda x: x % 2).to_iter_dataset(allow_nones=True)


@pytest.mark.parametrize(
    ("ds", "expected"),
    [
        (ABSENT, [[], [1], [], [3]]),
        (ABSENT.map(int), [[], [1], [], [3]]),
        (ABSENT.batch(2, batch_fn=list), [[1], [3], [5], [7]]),
        (ABSENT.block_map(lambda xs: xs, 3), [[], [1], [], [3]]),
    ],
)
def test_absent_elements_have_no_ids(ds, expected):
    iterator = iter(ds)
    for keys in expected:
        assert ds.ids(iterator.get_state())["key"].tolist() == keys
        next(iterator)


def test_rows_of_mapped_batches_keep_their_ids():
    ds = source().to_iter_dataset().batch(3).map(lambda batch: batch + 1)
    ds = Iter.RebatchIterDataset(ds, batch_size=2)
    assert ds.ids(iter(ds).get_state())["key"].tolist() == [0, 1]


def test_rows_of_one_record_have_its_id():
    rows = grain.MapDataset.source([np.zeros(3), np.ones(3)]).to_iter_dataset()
    ds = Iter.RebatchIterDataset(rows, batch_size=2)
    iterator = iter(ds)
    next(iterator)
    assert ds.ids(iterator.get_state())["key"].tolist() == [0, 1]


def test_replay_of_interleaving_uses_only_this_thread():
    calls = []

    def noted(element):
        calls.append(threading.current_thread())
        return element

    parts = [source(number).map(noted) for number in range(2)]
    for datasets in (parts, grain.MapDataset.source(parts)):
        ds = Iter.InterleaveIterDataset(datasets, cycle_length=2).batch(4)
        state = iter(ds).get_state()
        calls.clear()
        ds.replay(state)
        assert calls == [threading.current_thread()] * 4


def test_replay_does_not_write_to_quarantine(tmp_path):
    path = tmp_path / "bad.jsonl"
    ds = source().map(refusing).to_iter_dataset()
    ds = ds.on_error("skip", max_errors=0, quarantine=path)
    iterator = iter(ds)
    next(iterator), next(iterator)
    assert ds.replay(iterator.get_state()) == 3
    assert path.read_text() == ""


@pytest.mark.parametrize(
    "ds",
    [
        grain.IterDataset.from_iterable(lambda: range(5), replay=True),
        Iter.InterleaveIterDataset(source().map(lambda x: source(x)), cycle_length=2),
        source().shard(grain.ShardOptions(0, 3), remainder="pad").to_iter_dataset(),
    ],
)
def test_unknown_ids_raise(ds):
    state = iter(ds).get_state()
    ds.replay(state)
    with pytest.raises(TypeError, match=r"records .*not known|not known\. Pass a list"):
        ds.ids(state)


class RefusingBackend:
    """A backend of 2 workers, which cannot be started."""

    def workers(self, *arguments):
        raise AssertionError

    def processes(self):
        return 2


def test_replay_does_not_use_a_worker_backend():
    ds = source().to_iter_dataset().batch(2)
    ds = ds.mp_prefetch(NONE, streams=2, workers=RefusingBackend())
    state = iter(ds).get_state()
    assert ds.replay(state).tolist() == [0, 2]
    assert ds.ids(state)["key"].tolist() == [0, 2]
