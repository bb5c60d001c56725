"""from_iterable over Hugging Face datasets, torchdata nodes and torch datasets."""

import copy
import itertools
import json

import datasets
import datasets.distributed
import pytest
import torch
import torchdata.nodes
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as g
from gristmill import experimental as ex

from_iterable = g.IterDataset.from_iterable
SHARDS = 4
ROWS = 20


def rows_of(shards):
    for shard in shards:
        for row in range(5):
            yield {"x": 10 * shard + row}


def generated():
    return datasets.IterableDataset.from_generator(
        rows_of, gen_kwargs={"shards": list(range(SHARDS))}
    )


def from_table():
    table = datasets.Dataset.from_dict({"x": list(range(ROWS))})
    return table.to_iterable_dataset(num_shards=SHARDS)


STREAMS = {
    "generator": generated,
    "table": from_table,
    "map": lambda: generated().map(lambda row: {"x": row["x"] + 1}),
    "batched map": lambda: from_table().map(
        lambda rows: {"x": rows["x"][::-1]}, batched=True, batch_size=3
    ),
    "filter": lambda: generated().filter(lambda row: row["x"] % 3 > 0),
    "numpy": lambda: from_table().with_format("numpy"),
    "shards in another order": lambda: generated().shuffle(seed=3, buffer_size=1),
    "part": lambda: generated().skip(3).take(11),
    "repeated": lambda: from_table().repeat(2),
    "two": lambda: datasets.concatenate_datasets([generated(), from_table()]),
    "in turn": lambda: datasets.interleave_datasets([generated(), from_table()]),
    "one rank's": lambda: datasets.distributed.split_dataset_by_node(
        generated(), rank=1, world_size=2
    ),
}


def values(rows):
    return [int(row["x"]) for row in rows]


def resumed(ds, stop):
    """Save a state after `stop` elements; return the elements after restoring it."""
    iterator = iter(ds)
    for _ in itertools.islice(iterator, stop):
        pass
    state = json.loads(json.dumps(iterator.get_state()))
    iterator.close()
    iterator = iter(ds)
    iterator.set_state(state)
    return list(iterator)


@pytest.mark.parametrize("name", STREAMS)
def test_hugging_face_stream_resumes_exactly(name):
    stream = STREAMS[name]()
    expected = values(stream)  # This leaves the state of the stream at the end.
    ds = from_iterable(stream)
    assert values(ds) == expected
    for stop in range(len(expected) + 2):
        assert values(resumed(ds, stop)) == expected[stop:]
        theirs = copy.deepcopy(stream)
        for _ in itertools.islice(theirs, stop):
            pass
        if 0 < stop < len(expected):
            restored = STREAMS[name]()
            restored.load_state_dict(theirs.state_dict())
            assert values(restored) == expected[stop:]


@settings(max_examples=15, deadline=None)
@given(
    stop=st.integers(0, 12),
    batch_size=st.integers(1, 5),
    window=st.integers(1, 6),
    streams=st.integers(1, SHARDS),
)
def test_hugging_face_chain_resumes_exactly(stop, batch_size, window, streams):
    ds = from_iterable(generated()).map(lambda row: row["x"])
    ds = ex.WindowShuffleIterDataset(ds, window_size=window, seed=1)
    ds = ex.ThreadPrefetchIterDataset(ds.batch(batch_size), prefetch_buffer_size=2)
    ds = ds.mp_prefetch(g.MultiprocessingOptions(0), streams=streams)
    expected = [batch.tolist() for batch in ds]
    assert sorted(itertools.chain(*expected)) == sorted(values(generated()))
    assert [batch.tolist() for batch in resumed(ds, stop)] == expected[stop:]


def test_hugging_face_epochs_match_set_epoch():
    stream = generated().shuffle(seed=1, buffer_size=3)
    ds = from_iterable(stream)
    for epoch in range(3):
        alone = copy.deepcopy(stream)
        alone.set_epoch(epoch)
        assert values(ds.at_epoch(epoch)) == values(alone)
    assert stream.epoch == 0


def test_hugging_face_state_restores_epoch():
    stream = generated().shuffle(seed=1, buffer_size=1)
    stream.set_epoch(2)
    iterator = iter(from_iterable(stream))
    next(iterator)
    state, rest = iterator.get_state(), values(iterator)
    again = iter(from_iterable(generated().shuffle(seed=1, buffer_size=1)))
    again.set_state(state)
    assert values(again) == rest


@pytest.mark.parametrize("epoch", [0, 2])
def test_hugging_face_streams_have_each_row_once(epoch):
    stream = generated().shuffle(seed=1, buffer_size=1)
    stream.set_epoch(epoch)
    ds = from_iterable(stream).mp_prefetch(g.MultiprocessingOptions(0), streams=1)
    assert values(ds) == values(stream)
    for streams in (2, 3, SHARDS):
        ds = from_iterable(stream)
        ds = ds.mp_prefetch(g.MultiprocessingOptions(0), streams=streams)
        assert sorted(values(ds)) == sorted(values(stream))


@pytest.mark.parametrize("ranks", [2, 3])
def test_hugging_face_ranks_have_each_row_once(ranks):
    read = []
    for rank in range(ranks):
        part = datasets.distributed.split_dataset_by_node(generated(), rank, ranks)
        ds = from_iterable(part)
        read += values(ds.mp_prefetch(g.MultiprocessingOptions(0), streams=2))
    assert sorted(read) == sorted(values(generated()))


def test_hugging_face_shuffle_buffer_replays_every_row():
    ds = from_iterable(generated().shuffle(seed=1, buffer_size=7), replay=True)
    expected = values(ds)
    for stop in range(ROWS):
        assert values(resumed(ds, stop)) == expected[stop:]


def test_hugging_face_stream_with_few_shards_is_rejected():
    ds = from_iterable(generated())
    with pytest.raises(ValueError, match=r"has 4 shards.*at most 4 workers.*reshard"):
        ds.mp_prefetch()


NODES = {
    "wrapper": lambda: torchdata.nodes.IterableWrapper(range(7)),
    "loader": lambda: torchdata.nodes.Loader(torchdata.nodes.IterableWrapper(range(7))),
    "map": lambda: torchdata.nodes.Mapper(
        torchdata.nodes.IterableWrapper(range(7)), int
    ),
    "prefetcher": lambda: torchdata.nodes.Prefetcher(
        torchdata.nodes.IterableWrapper(range(7)), 2
    ),
}


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("name", NODES)
def test_torchdata_node_resumes_exactly(name, used):
    source = NODES[name]
    if used:
        if name in ("map", "prefetcher"):
            return  # Nodes with threads cannot be copied.
        source = source()
        next(iter(source))
    ds = from_iterable(source)
    assert list(ds) == list(ds) == list(range(7))
    for stop in range(8):
        assert resumed(ds, stop) == list(range(7))[stop:]


class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        yield from range(6) if info is None else range(info.id, 6, info.num_workers)


def test_torch_iterable_dataset_is_read_but_not_divided():
    ds = from_iterable(Numbers(), replay=True)
    assert list(ds) == list(range(6))
    assert resumed(ds, 2) == [2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"Numbers cannot be divided.*shard_index and"):
        ds.mp_prefetch(g.MultiprocessingOptions(2))


@pytest.mark.parametrize("make", [g.load, g.MapDataset.source])
@pytest.mark.parametrize("source", [generated(), Numbers()], ids=["hf", "torch"])
def test_iterable_dataset_as_source_error_names_from_iterable(make, source):
    with pytest.raises(TypeError, match=r"records by number.*from_iterable\("):
        make(source)
