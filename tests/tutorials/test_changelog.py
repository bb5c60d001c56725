"""Features that Grain's change log announces, as far as they still exist."""

import asyncio
import itertools
import json

import numpy as np
import pytest

# 0.2.12


def test_parquet_reading_takes_read_options(grain, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = str(tmp_path / "table.parquet")
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), path)
    dataset = grain.experimental.ParquetIterDataset(path, memory_map=True)
    assert [{k: int(v) for k, v in row.items()} for row in dataset] == [
        {"a": 1, "b": 3},
        {"a": 2, "b": 4},
    ]


def test_thread_prefetch_takes_any_iterator_with_a_state(grain):
    class Counter:
        def __init__(self):
            self.count = 0

        def __next__(self):
            self.count += 1
            return self.count

        def get_state(self):
            return {"count": self.count}

        def set_state(self, state):
            self.count = state["count"]

    iterator = grain.experimental.ThreadPrefetchDatasetIterator(
        Counter(), prefetch_buffer_size=2
    )
    assert [next(iterator) for _ in range(3)] == [1, 2, 3]
    assert iterator.get_state() == {"count": 3}
    iterator.set_state({"count": 10})
    assert next(iterator) == 11
    iterator.close()


def test_array_record_source_takes_reader_options(grain, tmp_path):
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(tmp_path / "data.array_record")
    writer = ArrayRecordWriter(path, "group_size:4")
    for record in (b"one", b"two"):
        writer.write(record)
    writer.close()
    options = {"index_storage_option": "in_memory"}
    source = grain.sources.ArrayRecordDataSource(path, reader_options=options)
    assert [source[0], source[1]] == [b"one", b"two"]


@pytest.mark.multiprocess
def test_workers_can_read_separate_files(grain):
    """With `sequential_slice` a worker reads a contiguous part of the source."""
    dataset = grain.MapDataset.range(10).to_iter_dataset()
    options = grain.MultiprocessingOptions(num_workers=2)
    iterator = iter(dataset.mp_prefetch(options, sequential_slice=True))
    assert list(iterator) == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


# 0.2.13


def test_repeat_can_replay_the_first_epoch(grain):
    shuffled = grain.MapDataset.range(4).shuffle(seed=1)
    anew = shuffled.repeat(2)
    replayed = shuffled.repeat(2, reseed_each_epoch=False)
    assert list(anew) == [1, 2, 3, 0, 0, 3, 1, 2]
    assert list(replayed) == [1, 2, 3, 0] * 2


def test_batches_are_regrouped(grain):
    batches = grain.MapDataset.range(7).batch(3).to_iter_dataset()
    regrouped = grain.experimental.RebatchIterDataset(batches, batch_size=2)
    assert [b.tolist() for b in regrouped] == [[0, 1], [2, 3], [4, 5], [6]]


def test_best_fit_pads_no_more_than_first_fit(grain):
    rng = np.random.default_rng(0)
    elements = [{"x": np.ones(rng.integers(1, 17), np.int64)} for _ in range(200)]

    def rows(kind):
        packed = kind(
            grain.MapDataset.source(elements).to_iter_dataset(),
            length_struct={"x": 16},
            num_packing_bins=8,
        )
        return sum(1 for _ in packed)

    best = rows(grain.experimental.BestFitPackIterDataset)
    first = rows(grain.experimental.FirstFitPackIterDataset)
    assert (best, first) == (129, 131)


def test_packing_limits_the_sequences_of_a_row(grain):
    elements = [{"x": np.full(2, i)} for i in range(1, 7)]
    packed = grain.experimental.FirstFitPackIterDataset(
        grain.MapDataset.source(elements).to_iter_dataset(),
        length_struct={"x": 8},
        num_packing_bins=2,
        max_sequences_per_bin=2,
        shuffle_bins=False,
    )
    assert [row["x"].tolist() for row in packed] == [
        [1, 1, 2, 2, 0, 0, 0, 0],
        [3, 3, 4, 4, 0, 0, 0, 0],
        [5, 5, 6, 6, 0, 0, 0, 0],
    ]


def test_iterated_datasets_repeat(grain):
    dataset = grain.MapDataset.range(3).to_iter_dataset()
    repeated = grain.experimental.RepeatIterDataset(dataset, num_epochs=2)
    assert list(repeated) == [0, 1, 2, 0, 1, 2]


def test_loader_takes_a_batching_function(grain):
    loader = grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 4, 1),
        sampler=grain.samplers.SequentialSampler(4),
        operations=[grain.transforms.Batch(2, batch_fn=tuple)],
    )
    assert list(loader) == [(0, 1), (2, 3)]


def test_cache_reads_its_parent_once(grain):
    read = []

    def step(x):
        read.append(x)
        return x

    dataset = grain.MapDataset.range(3).to_iter_dataset().map(step)
    cached = grain.experimental.CacheIterDataset(dataset)
    repeated = grain.experimental.RepeatIterDataset(cached, num_epochs=3)
    assert list(repeated) == [0, 1, 2] * 3
    assert read == [0, 1, 2]


def test_slice_of_a_slice_uses_its_parents_epochs(grain):
    dataset = grain.MapDataset.range(6).shuffle(seed=3)[1::2]
    assert [dataset[i] for i in range(6)] == [3, 1, 5, 0, 3, 1]


def test_apply_takes_one_transformation_or_many(grain):
    class Double(grain.transforms.Map):
        def map(self, x):
            return 2 * x

    batch = grain.transforms.Batch(2)
    applied = grain.MapDataset.range(4).apply([Double(), batch])
    assert [b.tolist() for b in applied] == [[0, 2], [4, 6]]


# 0.2.15


def test_iterator_is_closed_explicitly(grain):
    iterator = iter(grain.MapDataset.source([1, 2]))
    assert next(iterator) == 1
    iterator.close()
    with pytest.raises(ValueError, match="Trying to advance a closed iterator"):
        next(iterator)


def test_start_prefetch_reaches_the_first_asynchronous_ancestor(grain):
    dataset = grain.MapDataset.source([1, 2, 3]).to_iter_dataset()
    iterator = iter(dataset.map(lambda x: 10 * x).batch(2))
    iterator.start_prefetch()
    assert [b.tolist() for b in iterator] == [[10, 20], [30]]


def test_threads_prefetch_shares_of_a_dataset(grain):
    dataset = grain.MapDataset.range(7).to_iter_dataset()
    fetched = grain.experimental.multithread_prefetch(
        dataset, num_threads=2, buffer_size=2
    )
    assert list(fetched) == list(range(7))


def test_element_specification_is_inferred(grain):
    dataset = grain.MapDataset.range(10).batch(4, drop_remainder=True)
    spec = grain.experimental.get_element_spec(dataset.to_iter_dataset())
    assert (spec.shape, spec.dtype) == ((4,), np.dtype(np.int64))


def test_mixture_changes_after_a_checkpoint(grain):
    def part(start):
        return grain.MapDataset.range(start, start + 50).to_iter_dataset()

    before = iter(
        grain.IterDataset.mix({"a": part(0), "b": part(100)}, {"a": 1, "b": 1})
    )
    assert [next(before) for _ in range(4)] == [0, 100, 1, 101]
    after = iter(
        grain.IterDataset.mix(
            {"a": part(0), "b": part(100), "c": part(200)}, {"a": 1, "b": 1, "c": 2}
        )
    )
    after.set_state(json.loads(json.dumps(before.get_state())))
    values = [next(after) for _ in range(8)]
    assert sorted(values) == [2, 3, 102, 103, 200, 201, 202, 203]


# 0.2.16


def test_iterator_jumps_to_the_next_index(grain):
    dataset = grain.MapDataset.range(20).to_iter_dataset().batch(2)
    iterator = iter(dataset)
    next(iterator)
    assert grain.experimental.get_next_index(iterator) == 1
    grain.experimental.set_next_index(iterator, 7)
    assert next(iterator).tolist() == [14, 15]


def test_loader_starts_before_the_first_element(grain):
    loader = grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 4, 1),
        sampler=grain.samplers.SequentialSampler(4),
    )
    iterator = iter(loader)
    iterator.start_prefetch()
    assert list(iterator) == [0, 1, 2, 3]


def test_parquet_files_are_interleaved(grain, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    for i, path in enumerate(paths):
        pq.write_table(pa.table({"x": [10 * i, 10 * i + 1, 10 * i + 2]}), path)
    dataset = grain.experimental.ParquetIterDataset(paths)
    assert [int(row["x"]) for row in dataset] == [0, 10, 1, 11, 2, 12]


@pytest.mark.parametrize("index_type", [int, np.int64])
def test_source_index_can_be_used_in_arithmetic(grain, index_type):
    class Squares(grain.sources.RandomAccessDataSource):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index * index

    assert grain.MapDataset.source(Squares())[index_type(3)] == 9


# 0.2.17


def test_long_texts_are_not_truncated_in_batches(grain):
    texts = ["short", "a much longer text that must arrive whole"]
    (batch,) = grain.MapDataset.source(texts).batch(2)
    assert batch.tolist() == texts


def test_index_shuffle_takes_at_most_1024_rounds(grain):
    shuffled = grain.experimental.index_shuffle(
        3, max_index=65_535, seed=1, rounds=1024
    )
    assert 0 <= shuffled <= 65_535
    with pytest.raises(ValueError, match="between 4 and 1024"):
        grain.experimental.index_shuffle(3, max_index=9, seed=1, rounds=1026)


# 0.2.18, and the orbax protocol of 0.2.16


def test_packing_keeps_features_without_sequences(grain):
    elements = [{"x": np.full(2, i), "name": f"n{i}"} for i in range(1, 4)]
    packed = grain.experimental.FirstFitPackIterDataset(
        grain.MapDataset.source(elements).to_iter_dataset(),
        length_struct={"x": 4},
        meta_features=("name",),
        num_packing_bins=2,
        shuffle_bins=False,
    )
    rows = list(packed)
    assert [row["x"].tolist() for row in rows] == [[1, 1, 2, 2], [3, 3, 0, 0]]
    assert [list(row["name"]) for row in rows] == [["n1", "n2"], ["n3"]]


def test_start_prefetch_reaches_interleaved_datasets(grain):
    parts = [grain.MapDataset.range(i, i + 2).to_iter_dataset() for i in (0, 10)]
    iterator = iter(grain.experimental.InterleaveIterDataset(parts, cycle_length=2))
    iterator.start_prefetch()
    assert list(iterator) == [0, 10, 1, 11]


def test_iterators_save_and_load_themselves(grain, tmp_path):
    """Orbax calls these to checkpoint an iterator without a handler."""
    dataset = grain.MapDataset.range(6).shuffle(seed=1).to_iter_dataset()
    iterator = iter(dataset)
    before = list(itertools.islice(iterator, 2))

    class Context:
        def __init__(self, path):
            self.path = path

        async def await_creation(self):
            return self.path

    async def save():
        directory = Context(tmp_path)
        background = await iterator.save(directory)
        await background

    asyncio.run(save())
    rest = list(iterator)
    assert len(before) + len(rest) == 6
    assert [p.name for p in tmp_path.iterdir()] == ["process_0-of-1.json"]

    async def load():
        background = await iterator.load(tmp_path)
        await background

    asyncio.run(load())
    assert list(iterator) == rest
