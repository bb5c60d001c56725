"""Invalid arguments raise when the object is created; errors advise what to pass."""

import logging

import numpy as np
import pytest

import gristmill as g
from gristmill import sources
from gristmill._engine import arguments

NAN = float("nan")


class Unsized:
    def __getitem__(self, index):
        return index


class Splits(dict):
    pass


class Frame:
    """Looks like a data frame of pandas."""

    columns = ("x",)
    iloc = None

    def __len__(self):
        return 3

    def __getitem__(self, name):
        raise KeyError(name)


def load(source=range(4), **options):
    return g.load(source, **options)


def loader(**options):
    call = {"data_source": [1, 2], "sampler": g.IndexSampler(2)} | options
    return g.DataLoader(**call)


SOURCES = [
    ("train.tfrecord", r"train.tfrecord'.*Pass sources.TFRecordDataSource\('train"),
    ("a/b.tfrecord-00000-of-00010", r"sources.TFRecordDataSource\('a/b.tfrecord-00"),
    ("x.tfrecords.gz", r"sources.TFRecordDataSource\('x.tfrecords.gz'\)"),
    ("gs://bucket/x.array_record", r"sources.ArrayRecordDataSource\('gs://bucket"),
    ("x.array_record@10", r"sources.ArrayRecordDataSource\('x.array_record@10'\)"),
    ("data/*.parquet", r"sources.ParquetDataSource\('data/\*.parquet'\)"),
    ("train-000.tar", r"sources.TarDataSource\('train-000.tar'\)"),
    ("x@4.bagz", r"sources.BagDataSource\('x@4.bagz'\)"),
    ("x.npy", r"numpy.load\('x.npy', mmap_mode='r'\)"),
    ("x.csv", r"pyarrow.csv.read_csv\('x.csv'\)"),
    (7, "got a int, which has no __len__ and no __getitem__.*needs __len__"),
    (None, "got a NoneType, which has no __len__"),
    (
        (i for i in range(3)),
        r"got a generator.*only be read in order.*IterDataset.from_it",
    ),
    ({1, 2}, "got a set.*only be read in order.*IterDataset.from_iterable"),
    (map(str, [1]), "got a map.*IterDataset.from_iterable"),
    (g.MapDataset.range(3).to_iter_dataset(), "PrefetchIter.* already: use its"),
    ({"x": [1, 2], "y": [3, 4]}, "got a dict of list.*keys 'x', 'y'.*np.asarray"),
    (Splits(train=[1], test=[2]), r"got a Splits of list.*such as source\[name\]"),
    (Frame(), "must be indexed by row, got a Frame.*to_numpy"),
    (g.RangeDataSource, r"the class RangeDataSource itself. Pass RangeDataSource\("),
]


@pytest.mark.parametrize("make", [load, g.MapDataset.source], ids=["load", "source"])
@pytest.mark.parametrize(("source", "text"), SOURCES)
def test_invalid_source_is_rejected(make, source, text):
    with pytest.raises(TypeError, match=f"^data_source .*{text}"):
        make(source)


def test_existing_path_is_not_a_source(tmp_path):
    for path in (tmp_path, str(tmp_path)):
        with pytest.raises(TypeError, match=r"got the path .*sources.TFDSDataSource"):
            g.load(path)
    (tmp_path / "words").write_text("a b")
    with pytest.raises(TypeError, match=r"got the path .*words'\. Open it first"):
        g.load(tmp_path / "words")


def test_source_without_len_fails_when_length_is_needed():
    with pytest.raises(TypeError, match="must have a length, got a Unsized"):
        g.load(Unsized())
    dataset = g.MapDataset.source(Unsized())
    # Like Grain's, it still returns single elements.
    assert dataset.map(lambda x: x + 1)[7] == 8
    for ask in (len, lambda ds: ds.map(str).to_iter_dataset(), iter):
        with pytest.raises(TypeError, match=r"must have a length.*__len__\(\)"):
            ask(dataset)


@pytest.mark.parametrize(
    "source",
    ["text", "to be/or not to be\n", [1], {0: "a"}, b"ab", ["x.tfrecord"], range(2)],
)
def test_sources_of_grain_are_accepted(source):
    read = list(g.load(source, num_epochs=1))
    assert (
        read
        == list(g.MapDataset.source(source))
        == [source[i] for i in range(len(source))]
    )


LOAD = [
    ({"worker_count": 1.5}, TypeError, "worker_count must be an int, got float. Pass"),
    ({"worker_count": True}, TypeError, "worker_count must be an int, got bool. Pass"),
    ({"worker_count": NAN}, TypeError, "worker_count must be an int, got float. Pass"),
    ({"worker_count": "2"}, TypeError, "worker_count must be an int, got str. Pass"),
    ({"worker_count": -1}, ValueError, "Worker count should be greater than or equal"),
    ({"batch_size": "8"}, TypeError, r"batch_size of operations\[0\] must be an int"),
    ({"batch_size": 2.5}, TypeError, r"batch_size of operations\[0\] must be an int"),
    ({"batch_size": True}, TypeError, "must be an int, got bool"),
    ({"batch_size": 0}, ValueError, "batch_size must be positive, got 0"),
    ({"num_epochs": 1.5}, TypeError, "num_epochs must be an int, got float"),
    ({"num_epochs": True}, TypeError, "num_epochs must be an int, got bool"),
    ({"num_epochs": "1"}, TypeError, "num_epochs must be an int, got str"),
    ({"num_epochs": 0}, ValueError, "Invalid number of epochs in Index Sampler"),
    ({"seed": "a"}, TypeError, "Expected seed of int type. Got seed with type"),
    ({"seed": True}, TypeError, "Expected seed of int type. Got seed with type"),
    ({"seed": 1.5}, TypeError, "Expected seed of int type. Got seed with type"),
    ({"seed": -1}, ValueError, "Seed should be positive 32-bit integer"),
    ({"shuffle": 42}, TypeError, "shuffle must be True or False, got int"),
    ({"shuffle": "no"}, TypeError, "shuffle must be True or False, got str"),
    ({"drop_remainder": 32}, TypeError, "drop_remainder must be True or False, got"),
    ({"shard_options": (0, 1)}, TypeError, "shard_options must be a ShardOptions"),
    ({"read_options": 4}, TypeError, "read_options must be a ReadOptions or None"),
    ({"transformations": g.Batch(2)}, TypeError, "transformations must be a sequence"),
    ({"transformations": str}, TypeError, "transformations must be a sequence"),
    (
        {"transformations": [3]},
        TypeError,
        r"transformations\[0\] must be callable or .* int",
    ),
    ({"num_workers": 4}, TypeError, "num_workers is called worker_count here"),
    ({"drop_last": True}, TypeError, "drop_last is called drop_remainder here"),
    ({"collate_fn": list}, TypeError, r"collate_fn is an argument of .*batch_fn=coll"),
    ({"prefetch_factor": 2}, TypeError, "worker_buffer_size of DataLoader"),
    ({"pin_memory": True}, TypeError, "pin_memory is not needed here: .*as_tensors"),
    ({"sampler": None}, TypeError, "sampler is an argument of DataLoader"),
    ({"generator": None}, TypeError, "generator is not needed here: pass seed"),
    ({"nonsense": 1}, TypeError, "unexpected keyword argument 'nonsense'"),
]


@pytest.mark.parametrize(("options", "kind", "text"), LOAD)
def test_load_rejects_invalid_options(options, kind, text):
    with pytest.raises(kind, match=text):
        load(**options)


LOADER = [
    ({"sampler": [0, 1]}, r"must have __getitem__\(index\) that .* got list. Pass an"),
    ({"sampler": range(2)}, "that returns a RecordMetadata, got range"),
    ({"sampler": np.arange(2)}, "that returns a RecordMetadata, got ndarray"),
    ({"sampler": g.IndexSampler}, "got the class IndexSampler itself"),
    ({"sampler": iter([1])}, "got list_iterator"),
    ({"worker_buffer_size": True}, "worker_buffer_size must be an int, got bool"),
    ({"stall_timeout": True}, "stall_timeout must be a number or None, got bool"),
    ({"enable_profiling": 3}, "enable_profiling must be True or False, got int"),
    ({"operations": [g.Batch(2, batch_fn=3)]}, r"batch_fn of operations\[0\] must be"),
    ({"num_workers": 2, "batch_size": 3}, "worker_count here; batch_size is an oper"),
    ({"dataset": [1]}, "dataset is called data_source here"),
    (
        {"shuffle": True},
        r"shuffle is an argument of the sampler here: sampler=IndexSampler\(",
    ),
    ({"timeout": 3}, "timeout is called stall_timeout here"),
]


@pytest.mark.parametrize(("options", "text"), LOADER)
def test_data_loader_rejects_invalid_options(options, text):
    with pytest.raises(TypeError, match=text):
        loader(shard_options=g.NoSharding(), **options)


def test_list_of_record_metadata_is_a_sampler():
    metadata = [g.RecordMetadata(index=i, record_key=1 - i) for i in range(2)]
    listed = loader(sampler=metadata, shard_options=g.NoSharding())
    assert list(listed) == [2, 1]


OTHERS = [
    (lambda: g.IndexSampler([1, 2]), "num_records must be an int, got list. Pass len"),
    (lambda: g.IndexSampler(True), "num_records must be an int, got bool"),
    (lambda: g.IndexSampler(3, g.NoSharding(), 42), "shuffle must be True or False"),
    (
        lambda: g.IndexSampler(3, True, 42),
        "shard_options must be a ShardOptions, got b",
    ),
    (lambda: g.SequentialSampler(3, seed="a"), "seed must be an int, got str"),
    (lambda: g.SequentialSampler(3, seed=True), "seed must be an int, got bool"),
    (lambda: g.ShardOptions(0, True), "shard_count must be an int, got bool"),
    (lambda: g.ShardOptions("0", 2), "shard_index must be an int, got str"),
    (lambda: g.ShardOptions(0, 2, "x"), "drop_remainder must be True or False"),
    (lambda: g.ReadOptions(True), "num_threads must be an int, got bool"),
    (lambda: g.ReadOptions(4, None), "prefetch_buffer_size must be an int, got None"),
    (lambda: g.MultiprocessingOptions(2.0), "num_workers must be an int, got float"),
    (lambda: g.MultiprocessingOptions(True), "num_workers must be an int, got bool"),
    (lambda: g.MultiprocessingOptions(2, 1, 5), "enable_profiling must be True or Fa"),
    (lambda: g.RangeDataSource("0", "3", "1"), "start must be a number, got str"),
]


@pytest.mark.parametrize(("make", "text"), OTHERS)
def test_samplers_options_and_sources_reject_invalid_arguments(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_numpy_numbers_are_accepted_like_grain():
    made = g.load(
        np.arange(6),
        num_epochs=np.int64(1),
        shuffle=np.True_,
        seed=3,
        batch_size=np.int32(2),
        drop_remainder=1,
        worker_count=np.int8(0),
    )
    assert len(list(made)) == 3


@pytest.fixture
def warnings(caplog):
    """Capture warnings about lengths, with the once-only cache cleared."""
    arguments.warn_of_lengths.cache_clear()
    caplog.set_level(logging.WARNING, "gristmill")
    yield caplog
    arguments.warn_of_lengths.cache_clear()


COLUMNS = {"x": np.arange(1000), "y": np.arange(1000)}


def test_load_reads_all_rows_of_dict_of_arrays(warnings):
    assert [row["x"] for row in g.load(COLUMNS, num_epochs=1)] == list(range(1000))
    batches = list(g.load(COLUMNS, num_epochs=1, batch_size=100, shuffle=True, seed=1))
    seen = np.concatenate([batch["y"] for batch in batches])
    assert sorted(seen.tolist()) == list(range(1000))
    assert warnings.messages == []


@pytest.mark.parametrize("columns", [1, 3])
def test_length_of_dict_of_arrays_is_its_row_count(columns):
    table = {str(i): np.arange(7) for i in range(columns)}
    dataset = g.MapDataset.source(table)
    assert len(dataset) == len(list(dataset)) == len(dataset.shuffle(1)) == 7
    assert [len(part) for part in (dataset[::2], dataset.batch(3))] == [4, 3]
    assert len(sources.as_source(table)) == 7
    assert len(list(g.load(table, num_epochs=2))) == 14


@pytest.mark.parametrize(
    ("records", "read", "says"),
    [
        (2, [0, 1], "only records of the first 2 are read"),
        (
            6,
            [0, 1, 2, 3, 0, 1],
            "record keys wrap around, so that some records are read more often",
        ),
    ],
)
@pytest.mark.parametrize("kind", [g.IndexSampler, g.SequentialSampler])
def test_sampler_of_another_length_warns_once(kind, records, read, says, warnings):
    source = {"x": np.arange(4), "y": np.arange(4)}
    options = {"num_epochs": 1} if kind is g.IndexSampler else {}
    for _ in range(3):
        made = g.DataLoader(data_source=source, sampler=kind(records, **options))
        assert [row["x"] for row in made] == read
    (text,) = warnings.messages
    assert text.startswith(
        f"{kind.__name__} has num_records={records}, but the data source has 4 records:"
        f" {says}. Pass num_records=4"
    )


def test_sampler_of_source_length_does_not_warn(warnings):
    part = g.MapDataset.source(COLUMNS)[:10]
    for source, records in ((COLUMNS, 1000), (part, 10), (Unsized(), 5)):
        for kind in (g.IndexSampler, g.SequentialSampler):
            g.DataLoader(data_source=source, sampler=kind(records))
    assert warnings.messages == []
