"""Tests of reading TFDS datasets natively, and of tfds.data_source as a source."""

import json
import pickle
import shutil
import subprocess
import sys
import types
from typing import ClassVar

import fsspec
import fsspec.implementations.memory
import numpy as np
import pytest

from faults.scripts import run
from gristmill import (
    Batch,
    CorruptRecord,
    DataLoader,
    IndexSampler,
    Map,
    SequentialSampler,
    sources,
)
from gristmill._cli.opening import open_files
from gristmill.sources import _tfds_images
from gristmill.sources._tfds_nested import NestedSource
from support import extras
from support.arrow_types import same
from support.places import TESTS

MAYBE_WORKERS = [0, pytest.param(2, marks=pytest.mark.multiprocess)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Build datasets by TFDS in a subprocess, and return their folder."""
    extras.need_tensorflow()
    folder = tmp_path_factory.mktemp("tfds")
    script = TESTS / "support" / "tfds_builder.py"
    subprocess.run(
        [sys.executable, script, folder], check=True, capture_output=True, text=True
    )
    return folder


@pytest.fixture(scope="module")
def everything(data):
    return data / "everything" / "1.0.0"


@pytest.fixture(scope="module")
def elements(data):
    """Return the elements of tfds.data_source by split."""
    with open(data / "elements.pickle", "rb") as file:
        return pickle.load(file)


@pytest.mark.parametrize(
    "split",
    ["train", "test", "train[2:7]", "train[25%:]", "train[-30%:]", "train[-3:-1]"],
)
def test_elements_match_tfds(everything, elements, split):
    source = sources.TFDSDataSource(everything, split)
    assert len(source) == len(elements[split])
    for i, theirs in enumerate(elements[split]):
        ours = source[i]
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert same(ours[name], value), name
    some = source.__getitems__([1, 0, 1])
    theirs = elements[split]
    assert all(map(same, some, [theirs[1], theirs[0], theirs[1]]))


def test_remote_folder_is_read(everything, elements):
    memory = fsspec.filesystem("memory")
    for file in everything.iterdir():
        memory.put(str(file), f"/tfds/everything/{file.name}")
    source = sources.TFDSDataSource("memory://tfds/everything", "train[2:7]")
    assert all(map(same, source, elements["train[2:7]"]))


class Guarded(fsspec.implementations.memory.MemoryFileSystem):
    """A file system whose files require a password."""

    protocol = "guarded"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("guarded://", "memory://"))

    def __init__(self, word=None, **options):
        super().__init__(**options)
        self.word = word

    def info(self, path, **options):
        if self.word != "sesame":
            raise PermissionError(path)
        return super().info(path, **options)


def test_remote_folder_is_read_with_credentials(everything, elements):
    fsspec.register_implementation("guarded", Guarded, clobber=True)
    files = Guarded(word="sesame")
    for file in everything.iterdir():
        files.put(str(file), f"/everything/{file.name}")
    url = "guarded://everything"
    with pytest.raises(PermissionError, match="dataset_info"):
        sources.TFDSDataSource(url)
    source = sources.TFDSDataSource(
        url,
        "train[2:7]",
        storage_options={"word": "sesame"},
        remote_options=sources.RemoteOptions(attempts=1),
    )
    assert all(map(same, source, elements["train[2:7]"]))


def test_storage_options_are_refused_for_local_folder(everything):
    with pytest.raises(ValueError, match="storage_options needs a URL"):
        sources.TFDSDataSource(everything, storage_options={"word": "sesame"})


def test_features_are_selected(everything, elements):
    source = sources.TFDSDataSource(everything, features=["nested", "label"])
    wanted = [
        {name: e[name] for name in ("nested", "label")} for e in elements["train"]
    ]
    assert all(map(same, (source[i] for i in range(len(source))), wanted))


def listed(element):
    """Return an element with datasets converted to lists."""
    if isinstance(element, dict):
        return {name: listed(value) for name, value in element.items()}
    return [*element] if isinstance(element, NestedSource) else element


def test_nested_datasets_match_tfds(data, elements):
    source = sources.TFDSDataSource(data / "episodes" / "1.0.0")
    assert all(map(same, map(listed, source), elements["episodes"]))
    sent = [pickle.loads(pickle.dumps(element)) for element in source]
    assert all(map(same, map(listed, sent), elements["episodes"]))
    longest = max((e["steps"] for e in source), key=len)
    assert repr(longest) == "NestedSource(length=3)"
    assert same(longest[-1], longest[2])
    for index in (3, -4):
        with pytest.raises(IndexError):
            longest[index]


@pytest.mark.parametrize("workers", MAYBE_WORKERS)
def test_loaders_serve_nested_datasets(data, elements, workers):
    source = sources.TFDSDataSource(data / "episodes" / "1.0.0")
    loader = DataLoader(
        data_source=source, sampler=SequentialSampler(5), worker_count=workers
    )
    assert all(map(same, map(listed, loader), elements["episodes"]))


def test_nested_image_is_decoded_when_read(data, monkeypatch):
    source = sources.TFDSDataSource(data / "episodes" / "1.0.0", features=["steps"])
    steps = max((e["steps"] for e in source), key=len)
    decoded = []
    column = next(each for each in steps._columns if each.names[-1] == "image")
    monkeypatch.setattr(column, "_decode", lambda file: decoded.append(file) or 0)
    assert (steps[1]["image"], len(decoded)) == (0, 1)


def test_nested_fixed_length_sequences_are_read(data):
    source = sources.TFDSDataSource(data / "fixed_steps" / "1.0.0")
    found = sorted((listed(element)["steps"] for element in source), key=len)
    assert [[step["two"] for step in steps] for steps in found] == [
        [],
        [[0, 5]],
        [[0, 5], [1, 5]],
    ]
    frames = found[1][0]["video"]
    assert np.stack(frames).tolist() == np.arange(8).reshape(2, 2, 2, 1).tolist()


def test_16_bit_images_are_decoded_by_tfds(data, monkeypatch):
    monkeypatch.setattr(_tfds_images, "PACKAGES", ("tensorflow_datasets",))
    shapes = []

    def feature(shape):
        shapes.append(shape)
        pixels = np.zeros((2, 2, 1), np.uint16)
        return types.SimpleNamespace(decode_example_np=lambda file: pixels)

    monkeypatch.setattr(_tfds_images, "_feature", feature)
    source = sources.TFDSDataSource(data / "refused" / "1.0.0", features=["wide"])
    assert source[0]["wide"].dtype == np.uint16
    assert shapes == [(2, 2, 1)]


@pytest.mark.multiprocess
def test_neither_tensorflow_nor_tfds_is_imported(everything):
    out = run("tfds/imported_packages", everything)
    assert out.split() == ["text", "set()"]


FIXED = ["int", "tensor", "text", "label", "gray", "nested", "box", "two"]


def batches(source, workers, *operations):
    loader = DataLoader(
        data_source=source,
        sampler=IndexSampler(len(source), shuffle=True, num_epochs=1, seed=2),
        operations=[*operations, Batch(4)],
        worker_count=workers,
        streams=2,
    )
    return list(loader)


@pytest.mark.parametrize("workers", MAYBE_WORKERS)
def test_loaders_serve_elements(everything, elements, workers):
    wanted = [{name: e[name] for name in FIXED} for e in elements["train"]]
    expected = batches(wanted, 0)
    source = sources.TFDSDataSource(everything, features=FIXED)
    assert all(map(same, batches(source, workers), expected))
    by_step = batches(source.records, workers, source.decode)
    assert all(map(same, by_step, expected))


class Fixed(Map):
    """Keeps the fields that can be batched."""

    def map(self, element):
        return {name: element[name] for name in FIXED}


@pytest.mark.multiprocess
def test_tfds_data_source_is_served_unchanged(everything):
    out = run("tfds/as_it_is", everything, deadline_s=120)
    assert out.startswith("same ArrayRecordDataSource(")


def test_state_and_pickle_restore_source(everything):
    source = sources.TFDSDataSource(everything, "train[2:7]", ["label", "int"])
    assert repr(source) == (
        "TFDSDataSource(name=everything:1.0.0, split='train[2:7]', records=5,"
        " features=['label', 'int'])"
    )
    again = pickle.loads(pickle.dumps(source))
    assert (repr(again), again[3]) == (repr(source), source[3])

    def iterator():
        sampler = SequentialSampler(5)
        return iter(DataLoader(data_source=source, sampler=sampler))

    first, second = iterator(), iterator()
    next(first)
    second.set_state(first.get_state())
    assert list(second) == list(first)


def test_closed_source_reads_again(everything):
    with sources.TFDSDataSource(everything) as source:
        first = source[0]["int"]
    assert source[0]["int"] == first


@pytest.mark.parametrize(
    ("features", "text"),
    [
        (None, "Cannot decode feature .* without TFDS"),
        (["videos"], "feature 'videos' .* is a Video in sequences of sequences"),
        (["wide"], "'wide' .* is a Image of uint16, which needs .*not found: nothing"),
        (["image lists"], "'image lists' .* is a Image in sequences of sequences"),
        (["sources"], "'sources' .* is a Dataset inside a sequence or another dataset"),
    ],
)
def test_unsupported_features_are_refused(data, features, text, monkeypatch):
    monkeypatch.setattr(_tfds_images, "PACKAGES", ("nothing",))
    folder = data / "refused" / "1.0.0"
    with pytest.raises(ValueError, match=text):
        sources.TFDSDataSource(folder, features=features)
    assert [e["good"] for e in sources.TFDSDataSource(folder, features=["good"])] in (
        [0, 1],
        [1, 0],
    )


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            {"split": "trian"},
            ValueError,
            "split must be one of .*got 'trian'",
        ),
        ({"split": "train+test"}, ValueError, r"one of .*got 'train\+test'"),
        ({"split": "train[3]"}, ValueError, r"one of .*got 'train\[3\]'"),
        (
            {"split": "train[3:3]"},
            ValueError,
            "must have records, .*'train' has 11",
        ),
        ({"split": "train[:12]"}, ValueError, "up to 11 records, .*got '12'"),
        ({"split": "train[:101%]"}, ValueError, "up to 100%, got '101%'"),
        ({"split": "train[10%:5]"}, ValueError, r"in percents, got 'train\[10%:5\]'"),
        ({"split": "train[a:]"}, ValueError, "bounds .*got 'a'"),
        ({"features": ["lable"]}, ValueError, "features must .*got 'lable'. It has '"),
        ({"features": []}, ValueError, "at least one feature"),
        ({"features": "label"}, TypeError, "got the str 'label'"),
    ],
)
def test_bad_arguments_are_refused(everything, arguments, error, text):
    with pytest.raises(error, match=text):
        sources.TFDSDataSource(everything, **arguments)


def test_folder_without_dataset_is_refused(data, everything, tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder of a prepared"):
        sources.TFDSDataSource(data / "everything")
    for name in ("dataset_info.json", "features.json"):
        shutil.copy(everything / name, tmp_path)
    with pytest.raises(OSError, match="everything-train"):
        sources.TFDSDataSource(tmp_path)[0]
    info = json.loads((tmp_path / "dataset_info.json").read_text())
    (tmp_path / "dataset_info.json").write_text(
        json.dumps({**info, "fileFormat": "tfrecord"})
    )
    with pytest.raises(ValueError, match=r"'array_record', .*found 'tfrecord'"):
        sources.TFDSDataSource(tmp_path)


def test_split_without_records_is_refused(everything, tmp_path):
    shutil.copy(everything / "features.json", tmp_path)
    info = json.loads((everything / "dataset_info.json").read_text())
    info["splits"].append({"name": "none", "numBytes": "0"})
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(ValueError, match="must have records, got 'none': 'none' has 0"):
        sources.TFDSDataSource(tmp_path, "none")


def test_records_with_other_features_are_refused(everything, tmp_path):
    for file in everything.iterdir():
        shutil.copy(file, tmp_path)
    features = json.loads((tmp_path / "features.json").read_text())
    leaves = features["featuresDict"]["features"]
    leaves["missing"] = leaves["int"]
    leaves["tensor"]["tensor"]["shape"]["dimensions"] = ["5"]
    leaves["two"]["sequence"]["length"] = "3"
    leaves["as bytes"]["tensor"]["shape"]["dimensions"] = ["2"]
    leaves["jpegs"]["video"]["shape"]["dimensions"][0] = "3"
    (tmp_path / "features.json").write_text(json.dumps(features))
    for name in ("missing", "tensor", "two", "as bytes", "jpegs"):
        source = sources.TFDSDataSource(tmp_path, features=[name])
        with pytest.raises(CorruptRecord, match=name):
            source[0]
    assert np.isscalar(sources.TFDSDataSource(tmp_path, features=["int"])[0]["int"])


def test_open_files_opens_tfds_folder(everything):
    opened = open_files([str(everything)])
    source = sources.TFDSDataSource(everything)
    assert opened.records == len(source) == len(opened.source)
    assert opened.files == source.records.paths
    assert str(source).startswith("TFDSDataSource(name='everything:1.0.0', split=")
    assert str(everything) in str(source)
