"""Every name exists at Grain's place, including those imported on first use."""

from typing import Any, assert_type

import gristmill as grain
import gristmill.python as pygrain
from gristmill import checkpoint, experimental, images, sources, transforms
from gristmill.experimental import FirstFitPackIterDataset as Pack
from gristmill.python import ArrayRecordDataSource, PyGrainCheckpointSave


def read(paths: list[str]) -> None:
    assert_type(grain.ArrayRecordDataSource(paths), sources.ArrayRecordDataSource)
    assert_type(ArrayRecordDataSource(paths), grain.sources.ArrayRecordDataSource)
    assert_type(grain.sources.ArrayRecordDataSource(paths)[0], bytes)
    assert_type(sources.TFRecordDataSource(paths)[0], bytes)
    assert_type(sources.ParquetDataSource(paths)[0], dict[str, Any])
    assert_type(sources.FolderDataSource(paths[0])[0]["label"], int)
    assert_type(sources.TarDataSource(paths)[0], dict[str, Any])
    assert_type(sources.BagDataSource(paths)[0], bytes)
    assert_type(sources.JsonLinesDataSource(paths)[0], bytes)
    assert_type(sources.MDSDataSource(paths)[0], dict[str, Any])
    documents = sources.MegatronDataSource(paths)
    assert documents[0].ndim == documents.concat_and_chunk(8)[0].ndim == 1
    samples = sources.GPTDataSource(documents, 8, seed=1)
    assert sources.BlendedDataSource([samples])[0]["tokens"].ndim == 1
    assert sources.TokenArrayDataSource(paths, "u2", eos_id=0)[0].ndim == 1
    assert_type(
        grain.MapDataset.source(ArrayRecordDataSource(paths)), grain.MapDataset[bytes]
    )
    assert_type(
        experimental.TFRecordIterDataset(paths[0]).map(len), grain.IterDataset[int]
    )
    for record in experimental.TFRecordIterDataset(paths[0]):
        assert_type(record, bytes)


def pack(dataset: grain.IterDataset) -> grain.IterDataset:
    return Pack(dataset, length_struct={"tokens": 8}, num_packing_bins=2)


def peek(iterator: pygrain.PyGrainDatasetIterator[int]) -> None:
    assert_type(iterator, grain.DataLoaderIterator[int])
    assert_type(next(iterator), int)


def save(manager: Any, iterator: grain.PyGrainDatasetIterator) -> None:
    save: PyGrainCheckpointSave = checkpoint.CheckpointSave(iterator)
    manager.save(0, grain.PyGrainCheckpointSave(item=iterator), save)
    manager.restore(0, grain.checkpoint.CheckpointRestore(item=iterator))
    manager.restore(0, pygrain.PyGrainCheckpointRestore(item=iterator))


assert_type(pygrain.InMemoryDataSource, type[sources.SharedMemoryDataSource])
assert_type(grain.InMemoryDataSource, type[sources.SharedMemoryDataSource])
assert_type(pygrain.MapTransform, type[transforms.Map])
assert_type(grain.FlatMapTransform, type[transforms.FlatMap])
assert_type(pygrain.experimental.BOSHandling, type[grain.experimental.BOSHandling])
assert_type(grain.experimental.index_shuffle(1, 9, 1, 4), int)
assert_type(grain.META_FEATURES, frozenset[str])
assert_type(grain.errors.WorkerDied, type[grain.WorkerDied])
grain.config.update("py_debug_mode", False)
grain.multiprocessing.MultiprocessingOptions(num_workers=2)
transforms.DecodeImage()
assert_type(images.DecodeImage, type[transforms.DecodeImage])
grain.images.RandomResizedCrop(224, (0.1, 1), interpolation="bicubic", key="image")
grain.images.Resize([256], max_size=300)
images.Normalize([0.5], [0.5], dtype="float16")
transforms.ParseExample({"x": transforms.FixedLen((), "int64")})
grain.transforms.DecodeNpy()
grain.transforms.Tokenize(len, "text", suffix=[1])
print(
    grain.drop_in,
    grain.monitoring,
    grain.__version__.split("."),
    grain.ShardByJaxProcess,
)
