"""Pickles of earlier releases name modules that have moved since, and still load."""

import pickle
import pickletools

import pytest

import gristmill
from gristmill import experimental, sources, transforms
from gristmill._base import report
from gristmill._dataset.model import observer


def named(module, name):
    """A pickle of a class, in text."""
    return f"c{module}\n{name}\n.".encode()


@pytest.mark.parametrize(
    ("module", "name", "cls"),
    [
        ("_array_record", "ArrayRecordDataSource", sources.ArrayRecordDataSource),
        ("_parquet", "ParquetDataSource", sources.ParquetDataSource),
        ("_remote", "RemoteOptions", sources.RemoteOptions),
        ("_shared_list", "SharedMemoryDataSource", sources.SharedMemoryDataSource),
        ("_tf_record", "TFRecordDataSource", sources.TFRecordDataSource),
        ("_tf_record_stream", "TFRecordStream", sources.TFRecordStream),
        ("_tfds", "TFDSDataSource", sources.TFDSDataSource),
        ("_example", "ParseExample", transforms.ParseExample),
        ("_features", "FixedLen", transforms.FixedLen),
        ("_image", "DecodeImage", transforms.DecodeImage),
        ("_npy", "DecodeNpy", transforms.DecodeNpy),
        ("_dataset.cache", "CacheIterDataset", experimental.CacheIterDataset),
        ("_dataset.factories", "IterDatasetMeta", type(gristmill.IterDataset)),
        ("_dataset.factories", "MapDatasetMeta", type(gristmill.MapDataset)),
        (
            "_dataset.model.iter_factories",
            "IterDatasetMeta",
            type(gristmill.IterDataset),
        ),
        ("_dataset.opening", "iterate", observer.iterate),
        ("_dataset.padding", "batch_and_pad", experimental.batch_and_pad),
        ("_observe.report", "Report", report.Report),
    ],
)
def test_classes_of_old_pickles_are_found(module, name, cls):
    assert pickle.loads(named(f"gristmill.{module}", name)) is cls


def test_a_dataset_of_an_old_pickle_gives_its_elements():
    dataset = gristmill.MapDataset.range(10).shuffle(seed=3).map(abs).batch(3)
    wanted = [batch.tolist() for batch in dataset]
    today = pickle.dumps(dataset.to_iter_dataset(), 2)
    old = today
    for folder in (b"nodes", b"model", b"parallel"):
        old = old.replace(b"gristmill._dataset." + folder, b"gristmill._dataset")
    assert old != today
    assert [batch.tolist() for batch in pickle.loads(old)] == wanted
    names = {str(value) for _, value, _ in pickletools.genops(old)}
    assert "gristmill._dataset.batch BatchMapDataset" in names


def test_modules_that_nobody_has_are_not_found():
    for name in ("gristmill._dataset.no_such", "gristmill.no_such", "gristmill.__x__"):
        with pytest.raises(ModuleNotFoundError, match=name):
            pickle.loads(named(name, "Class"))
