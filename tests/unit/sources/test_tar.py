"""Tests of reading tar files by sample, compared with webdataset."""

import contextlib
import gzip
import io
import os
import pathlib
import pickle
import tarfile

import fsspec
import numpy as np
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from webdataset import tariterators

import gristmill as grain
from gristmill import errors, sources

FORMATS = {
    "ustar": tarfile.USTAR_FORMAT,
    "gnu": tarfile.GNU_FORMAT,
    "pax": tarfile.PAX_FORMAT,
}
SIZES = [0, 1, 511, 512, 513, 70_000]


def write(path, members, kind="pax"):
    """Write (name, data) as members; data is bytes or a member type of tarfile."""
    with tarfile.open(path, "w", format=FORMATS[kind], encoding="utf-8") as file:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
            else:
                member.type = data
                member.linkname = "elsewhere"
                file.addfile(member)
    return str(path)


def by_webdataset(*paths):
    """Return the samples of webdataset, by the functions that its loader uses.

    The loader itself leaves files open, and adds the location of its copy.
    """
    with contextlib.ExitStack() as stack:
        opened = [
            {"url": path, "stream": stack.enter_context(open(path, "rb"))}
            for path in paths
        ]
        members = tariterators.tar_file_expander(opened)
        return list(tariterators.group_by_keys(members))


MEMBERS = [
    ("a/0.jpg", b"\xff\xd8"),
    ("a/0.seg.PNG", bytes(600)),
    ("a/0.cls", b""),
    ("a/1.jpg", b"one"),
    ("a/1.cls", b"1"),
    ("b/1.cls", b"2"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Use a temporary folder as the cache."""
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "train.tar", MEMBERS)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Write two files of 60 and 40 samples."""
    folder = tmp_path_factory.mktemp("many")
    numbers = np.split(np.arange(100), [60])
    return [
        write(
            folder / f"{shard}.tar",
            [
                (f"{i:03d}.{end}", b"%d" % i * (i % 7))
                for i in part
                for end in ("x", "Y")
            ],
        )
        for shard, part in enumerate(numbers)
    ]


def keys_of(elements):
    return [int(element["__key__"]) for element in elements]


# Comparison with webdataset

names = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            ".",
            "/",
            "__",
            "A",
            "é",
            "ß",
            "İ",
            "\n",
            "x" * 60,
            ".jpg",
            ".__key__",
            "\udce9",
        ]
    ),
    min_size=1,
    max_size=6,
).map("".join)
whole = st.tuples(names, st.sampled_from(SIZES).map(lambda size: b"d" * size))
others = st.tuples(
    names, st.sampled_from([tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(whole | whole | whole | others, max_size=8),
    st.sampled_from(["gnu", "pax"]),
)
def test_samples_match_webdataset(tmp_path_factory, members, kind):
    path = write(tmp_path_factory.getbasetemp() / "drawn.tar", members, kind)
    try:
        expected = by_webdataset(path)
    except ValueError as error:
        assert "duplicate file name" in str(error)
        with pytest.raises(errors.CorruptRecord, match="has two fields"):
            list(sources.TarDataSource(path))
    else:
        assert list(sources.TarDataSource(path)) == expected


def test_samples_marked_bad_are_left_out(tmp_path):
    members = [("0.__bad__", b"1"), ("0.x", b""), ("1.__BAD__", b""), ("2.x", b"")]
    path = write(tmp_path / "train.tar", members)
    assert list(sources.TarDataSource(path)) == by_webdataset(path)
    assert [e["__key__"] for e in sources.TarDataSource(path)] == ["1", "2"]


@pytest.mark.parametrize("kind", FORMATS)
def test_headers_of_every_format_are_read(tmp_path, kind):
    members = [("f" * 90 + "/" + "n" * 90 + ".jpg", b"long"), *MEMBERS]
    path = write(tmp_path / "train.tar", members, kind)
    found = list(sources.TarDataSource(path))
    assert found == by_webdataset(path)
    assert found[0]["jpg"] == b"long"
    assert found[1] == {
        "__key__": "a/0",
        "__url__": path,
        "jpg": b"\xff\xd8",
        "seg.png": bytes(600),
        "cls": b"",
    }


def test_binary_member_sizes_are_read(tmp_path):
    member = tarfile.TarInfo("a.bin")
    member.size = 5
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    head[124:136] = b"\x80" + (5).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (tmp_path / "a.tar").write_bytes(head + b"bytes".ljust(512, b"\0"))
    assert sources.TarDataSource(tmp_path / "a.tar")[0]["bin"] == b"bytes"


def test_samples_do_not_span_files(tmp_path):
    paths = [write(tmp_path / f"{i}.tar", [("same.x", b"%d" % i)]) for i in range(2)]
    assert list(sources.TarDataSource(paths)) == by_webdataset(*paths)
    assert len(sources.TarDataSource(str(tmp_path / "*.tar"))) == 2


# Random access


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_samples_are_read_in_any_order(many, access):
    source = sources.TarDataSource(many, access=access)
    order = np.random.default_rng(0).permutation(100)
    assert len(source) == 100
    assert keys_of(source.__getitems__(order)) == order.tolist()
    assert source[99] == {
        "__key__": "099",
        "__url__": many[1],
        "x": b"99",
        "y": b"99",
    }
    # Header and data of both members, without padding at the end.
    assert source.sizes([99, 0]).tolist() == [512 + 512 + 512 + 2, 512 + 512]
    with pytest.raises(ValueError, match=r"should be in \[0, num_records\), got 100"):
        source[100]


def test_pickled_source_serves_same_samples(many):
    source = sources.TarDataSource(many)
    again = pickle.loads(pickle.dumps(source))
    assert again[75] == source[75]
    assert repr(again) == repr(source)


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffle_is_global_and_resumes(many, workers):
    def loader():
        return grain.DataLoader(
            data_source=sources.TarDataSource(many),
            sampler=grain.IndexSampler(100, shuffle=True, num_epochs=1, seed=3),
            worker_count=workers,
        )

    iterator = iter(loader())
    first = [next(iterator) for _ in range(37)]
    state = iterator.get_state()
    rest = list(iterator)
    again = iter(loader())
    again.set_state(state)
    assert list(again) == rest
    assert sorted(keys_of(first + rest)) == list(range(100))
    assert len({element["__url__"] for element in first}) == 2


def test_datasets_and_torch_read_tar_files(many):
    source = sources.TarDataSource(many)
    dataset = grain.MapDataset.source(source).shuffle(seed=1)
    order = keys_of(dataset[i] for i in range(100))
    assert keys_of(dataset.to_iter_dataset()) == order
    loader = torch.utils.data.DataLoader(source, batch_size=None)
    assert list(loader) == list(source)


def test_files_at_urls_are_read(many):
    with open(many[0], "rb") as file, fsspec.open("memory://far.tar", "wb") as far:
        far.write(file.read())
    try:
        source = sources.TarDataSource("memory://far.tar")
        here = sources.TarDataSource(many[0])
        assert source[41] == here[41] | {"__url__": "memory://far.tar"}
        read = grain.MapDataset.source(source).shuffle(seed=1).to_iter_dataset()
        assert sorted(keys_of(read)) == list(range(60))
    finally:
        fsspec.filesystem("memory").store.clear()


# Index


def test_index_is_saved_and_rebuilt_after_change(path):
    kept = pathlib.Path(path).with_name(".train.tar.gristmill-index")
    expected = list(sources.TarDataSource(path))
    first = kept.stat()
    assert list(sources.TarDataSource(path)) == expected
    assert kept.stat().st_ino == first.st_ino
    write(path, MEMBERS[2:])
    assert len(sources.TarDataSource(path)) == 3
    assert kept.stat().st_ino != first.st_ino


@pytest.mark.parametrize("content", [b"", b"torn", None])
def test_wrong_index_is_rebuilt(path, tmp_path, content):
    expected = list(sources.TarDataSource(path))
    kept = tmp_path / ".train.tar.gristmill-index"
    if content is None:
        other = write(tmp_path / "other.tar", MEMBERS[:1])
        sources.TarDataSource(other)
        content = (tmp_path / ".other.tar.gristmill-index").read_bytes()
    kept.write_bytes(content)
    assert list(sources.TarDataSource(path)) == expected
    assert kept.read_bytes() != content


def test_index_dir_chooses_folder_of_index(path, tmp_path):
    source = sources.TarDataSource(path, index_dir=tmp_path / "indices")
    assert len(source) == 3
    names = [file.name for file in tmp_path.rglob("*.gristmill-index")]
    assert len(names) == 1
    assert (tmp_path / "indices" / names[0]).exists()


# Damaged files


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (0, "the file is empty"),
        (100, "member at offset 0: it has 512 bytes, but the file ends after 100"),
        (512 * 3 + 200, "at offset 1024: it has 600 bytes, but .* ends after 200"),
    ],
)
def test_truncated_file_is_refused(path, keep, message):
    os.truncate(path, keep)
    with pytest.raises(errors.CorruptRecord, match=f"train.tar: .*{message}"):
        sources.TarDataSource(path)


def test_damaged_header_is_not_taken_for_end_of_file(path):
    with open(path, "r+b") as file:
        file.seek(1024)
        file.write(b"X")
    with pytest.raises(errors.CorruptRecord, match="its header at offset 1024 is dam"):
        sources.TarDataSource(path)


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        (gzip.compress(b"", mtime=0), "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh9", "bzip2"),
    ],
)
def test_compressed_file_is_refused_with_advice(tmp_path, begin, name):
    (tmp_path / "a.tar.gz").write_bytes(begin + bytes(600))
    with pytest.raises(errors.CorruptRecord, match=f"compressed with {name}.*unpack"):
        sources.TarDataSource(tmp_path / "a.tar.gz")


def test_sparse_members_are_refused(tmp_path):
    sparse = tarfile.TarInfo("a.bin")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        file.addfile(sparse)
    with pytest.raises(errors.CorruptRecord, match="sparse file: pack it without"):
        sources.TarDataSource(tmp_path / "a.tar")


def test_sample_with_duplicate_field_fails_alone(tmp_path):
    path = write(tmp_path / "a.tar", [("0.x", b""), ("1.x", b""), ("1.X", b"")])
    source = sources.TarDataSource(path)
    assert source[0]["__key__"] == "0"
    with pytest.raises(errors.CorruptRecord, match=r"sample 1 at offset 512: .*1\.X"):
        source[1]


def test_file_changed_while_open_is_refused(path, tmp_path):
    source = sources.TarDataSource(path)
    with open(path, "r+b") as file:
        file.write(write_bytes(tmp_path, [("other/0.jpg", b"\xff\xd8")])[:1024])
    with pytest.raises(errors.CorruptRecord, match="members of two samples"):
        source[0]
    assert source[1]["jpg"] == b"one"
    os.truncate(path, 1024)
    with pytest.raises(errors.CorruptRecord, match=r"train\.tar: .* ends"):
        source[1]


def write_bytes(folder, members):
    with open(write(folder / "written.tar", members), "rb") as file:
        return file.read()


def test_file_replaced_after_pickling_is_refused(path):
    pickled = pickle.dumps(sources.TarDataSource(path))
    write(path, [("other.jpg", b""), *MEMBERS])
    with pytest.raises(errors.CorruptRecord, match=r"train\.tar: the file has changed"):
        pickle.loads(pickled)[0]


def test_file_deleted_after_pickling_is_named(many, tmp_path):
    source = sources.TarDataSource(write(tmp_path / "gone.tar", MEMBERS))
    pickled = pickle.dumps(source)
    os.remove(tmp_path / "gone.tar")
    with pytest.raises(FileNotFoundError, match=r"gone\.tar"):
        pickle.loads(pickled)[0]


def test_missing_file_or_bad_access_is_refused(path, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        sources.TarDataSource(tmp_path / "none.tar")
    with pytest.raises(ValueError, match="must be 'pread' or 'mmap'"):
        sources.TarDataSource(path, access="read")
