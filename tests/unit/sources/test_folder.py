"""Tests that FolderDataSource finds the same files and classes as ImageFolder."""

import json
import os
import pickle

import numpy as np
import pytest

import gristmill as grain
from gristmill.sources import FolderDataSource
from gristmill.torch import DataLoader

# Each file's text is its own name.
FILES = (
    "dog/b.JPG",
    "dog/a.png",
    "dog/notes.txt",
    "dog/in/0.jpeg",
    "dog/in-side/1.webp",
    "cat/10.jpg",
    "cat/9.jpg",
    "Ant/z.tiff",
    "Ant/.hidden.bmp",
    "not-in-a-class.jpg",
)
# Classes are ordered by code points, and files by folder, then by name. If they were
# sorted as paths, "in-side" would come before "in/...".
SAMPLES = [
    ("Ant/.hidden.bmp", 0),
    ("Ant/z.tiff", 0),
    ("cat/10.jpg", 1),
    ("cat/9.jpg", 1),
    ("dog/a.png", 2),
    ("dog/b.JPG", 2),
    ("dog/in/0.jpeg", 2),
    ("dog/in-side/1.webp", 2),
]


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(name)
    return tmp_path


def named(source):
    """Return the relative paths and the labels of a source."""
    return [(os.path.relpath(path, source.path), n) for path, n in source.samples]


def test_order_of_classes_and_files_matches_image_folder(folder):
    source = FolderDataSource(folder)
    assert source.classes == ["Ant", "cat", "dog"]
    assert source.class_to_idx == {"Ant": 0, "cat": 1, "dog": 2}
    assert named(source) == SAMPLES
    assert source.targets == [0, 0, 1, 1, 2, 2, 2, 2]


def test_record_has_bytes_and_class(folder):
    source = FolderDataSource(str(folder))
    assert len(source) == 8
    assert source[0] == {"image": b"Ant/.hidden.bmp", "label": 0}
    assert source[np.int64(7)] == {"image": b"dog/in-side/1.webp", "label": 2}
    assert [(r["image"].decode(), r["label"]) for r in source] == SAMPLES


@pytest.mark.parametrize("key", [-1, 8])
def test_index_out_of_range_is_refused(folder, key):
    source = FolderDataSource(folder)
    with pytest.raises(IndexError, match=rf"in \[0, 8\), got {key}, for the files"):
        source[key]


def test_deleted_file_is_named(folder):
    source = FolderDataSource(folder)
    (folder / "cat/9.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"cat/9\.jpg"):
        source[3]


def test_extensions_select_files(folder):
    source = FolderDataSource(folder, extensions=(".TXT", ".jpg"), allow_empty=True)
    assert named(source) == [
        ("cat/10.jpg", 1),
        ("cat/9.jpg", 1),
        ("dog/b.JPG", 2),
        ("dog/notes.txt", 2),
    ]
    assert source.classes == ["Ant", "cat", "dog"]


def test_is_valid_file_selects_files_by_path(folder):
    def valid(path):
        return path.endswith(("z.tiff", "9.jpg", "/in/0.jpeg"))

    source = FolderDataSource(folder, is_valid_file=valid)
    assert [name for name, _ in named(source)] == [
        "Ant/z.tiff",
        "cat/9.jpg",
        "dog/in/0.jpeg",
    ]


def test_links_to_files_and_folders_are_followed(folder):
    (folder / "dog/in/linked").symlink_to(folder / "cat")
    (folder / "cat/link.jpg").symlink_to(folder / "Ant/z.tiff")
    source = FolderDataSource(folder)
    assert named(source)[2:5] == [
        ("cat/10.jpg", 1),
        ("cat/9.jpg", 1),
        ("cat/link.jpg", 1),
    ]
    assert named(source)[9:12] == [
        ("dog/in/linked/10.jpg", 2),
        ("dog/in/linked/9.jpg", 2),
        ("dog/in/linked/link.jpg", 2),
    ]
    assert source[4]["image"] == b"Ant/z.tiff"


@pytest.mark.parametrize("target", ["dog", ".", "dog/in"])
def test_link_to_enclosing_folder_is_refused(folder, target):
    (folder / "dog/in/back").symlink_to(folder / target)
    with pytest.raises(ValueError, match="dog/in/back must not be a link to a fol"):
        FolderDataSource(folder)


def test_names_that_are_not_utf_8_are_read(folder):
    name = os.fsencode(folder) + b"/cat/\xff.jpg"
    with open(name, "wb") as file:
        file.write(b"latin")
    source = FolderDataSource(folder)
    assert os.fsencode(source.samples[4][0]) == name
    assert source[4] == {"image": b"latin", "label": 1}
    assert "files=9" in repr(source)


@pytest.mark.parametrize(
    ("path", "options", "error", "match"),
    [
        ("none", {}, FileNotFoundError, "an existing folder, got .*/none"),
        (
            "not-in-a-class.jpg",
            {},
            NotADirectoryError,
            "folder for each class, got the file .*jpg",
        ),
        ("cat", {}, FileNotFoundError, "one folder for each class, .* in .*cat"),
        (
            "",
            {"extensions": ".png"},
            FileNotFoundError,
            r"file named \.png, .* classes Ant, cat\. Pass allow_empty=True",
        ),
        (
            "",
            {"is_valid_file": lambda path: False},
            FileNotFoundError,
            "a file that is_valid_file accepts, .*Ant, cat, dog",
        ),
        (
            "",
            {"extensions": ".png", "is_valid_file": len},
            ValueError,
            "extensions and is_valid_file must not both",
        ),
        (
            "",
            {"extensions": [1]},
            ValueError,
            r"extensions must be .*got \[1\]",
        ),
        ("", {"extensions": ()}, ValueError, r"extensions must be .*got \(\)"),
        (
            "",
            {"is_valid_file": 3},
            TypeError,
            "is_valid_file must be a function, got int",
        ),
    ],
)
def test_bad_folder_or_arguments_are_refused(folder, path, options, error, match):
    with pytest.raises(error, match=match):
        FolderDataSource(folder / path, **options)


def test_remote_folder_error_suggests_conversion():
    with pytest.raises(ValueError, match=r"must be a folder of this machine.*convert"):
        FolderDataSource("gs://bucket/train")


def test_pickle_excludes_lists_made_from_names(folder):
    source = FolderDataSource(folder)
    small = len(pickle.dumps(source))
    assert source.samples
    assert source.targets
    data = pickle.dumps(source)
    assert len(data) == small
    other = pickle.loads(data)
    assert other.samples == source.samples
    assert repr(other) == repr(source)


class Around:
    """A user-defined source whose repr contains that of the inner source."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        return self.source[index]["label"]

    def __repr__(self):
        return f"Around({self.source!r}, quotes='\"')"


def source_in_state(source):
    state = iter(grain.load(source, num_epochs=1)).get_state()
    return json.loads(state)["data_source"]


def test_repr_shows_path_and_number_of_files(folder):
    shown = repr(FolderDataSource(folder))
    assert shown.startswith(f"FolderDataSource({str(folder)!r}, hash_of_names=")
    assert shown.endswith(", files=8, classes=3)")


@pytest.mark.parametrize("name", ["train", "it's", 'a"b', "a\\', hash_of_names=1"])
def test_state_depends_on_files_and_not_on_folder(folder, tmp_path_factory, name):
    def texts(path):
        source = FolderDataSource(path)
        return source_in_state(source), source_in_state(Around(source))

    before = texts(folder)
    # The format of 0.2.0.
    assert before[0].startswith("FolderDataSource(hash_of_names=")
    assert before[1] == f"Around({before[0]}, quotes='\"')"
    os.rename(folder / "dog/in", folder / "dog/on")
    assert texts(folder)[0] != before[0]
    os.rename(folder / "dog/on", folder / "dog/in")
    moved = tmp_path_factory.mktemp("moved") / name
    os.rename(folder, moved)
    assert texts(moved) == before


def labels(batches):
    return [batch["label"].tolist() for batch in batches]


class Length(grain.transforms.Map):
    """Replaces the bytes by their length."""

    def map(self, element):
        return {**element, "image": len(element["image"])}


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_reads_shard_in_workers(folder, workers):
    sampler = grain.IndexSampler(
        8, shard_options=grain.ShardOptions(1, 2), num_epochs=1, shuffle=False
    )
    loader = grain.DataLoader(
        data_source=FolderDataSource(folder),
        sampler=sampler,
        operations=[Length(), grain.Batch(1)],
        worker_count=workers,
    )
    got = list(loader)
    assert labels(got) == [[2], [2], [2], [2]]
    assert [b["image"].tolist() for b in got] == [[9], [9], [13], [18]]


def test_dataset_reads_folder(folder):
    ds = grain.MapDataset.source(FolderDataSource(folder)).map(Length())[1::3].batch(2)
    assert labels(ds) == [[0, 2], [2]]


@pytest.mark.multiprocess
def test_torch_loader_reads_folder(folder):
    # The default start method depends on whether other tests have used JAX.
    options = {"num_workers": 2, "multiprocessing_context": "fork"}
    loader = DataLoader(FolderDataSource(folder), batch_size=3, **options)
    got = list(loader)
    assert labels(got) == [[0, 0, 1], [1, 2, 2], [2, 2]]
    assert got[2]["image"] == [b"dog/in/0.jpeg", b"dog/in-side/1.webp"]


def test_path_given_as_source_suggests_folder_source(folder):
    with pytest.raises(TypeError, match=r"sources\.FolderDataSource\('.*'\) for class"):
        grain.MapDataset.source(str(folder))
