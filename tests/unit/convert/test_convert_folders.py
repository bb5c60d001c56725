"""`gristmill convert` reads folders, and follows links only within them."""

import os
import socket

import pytest

from gristmill._convert import finding
from support.cli import names, read_array_record, run, shards, write_tf_record
from support.conversions import features_of, left


@pytest.fixture
def photos(tmp_path):
    """Write a tree of files in the layout that ImageFolder reads."""
    files = {
        "photos/dog/2.jpg": b"two",
        "photos/cat/deep/1.jpg": b"one",
        "photos/cat/3.jpg": b"",
        "photos/readme": b"top",
    }
    for name, content in {**files, "photos/.hidden/x": b"", "photos/.x": b""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path / "photos"


def test_files_of_a_folder_become_records(tmp_path, photos):
    done = run("convert", photos, tmp_path / "out")
    assert done.status == 0, done.err
    found = read_array_record(tmp_path / "out.array_record")
    assert found == [b"", b"one", b"two", b"top"]


def test_files_of_a_folder_are_recorded_with_their_names(tmp_path, photos):
    done = run(
        *("convert", photos, tmp_path / "out", "--with-names", "--shards", 2),
    )
    assert done.status == 0, done.err
    found = map(features_of, read_array_record(*shards(tmp_path, "out", 2)))
    assert [(f["name"][1][0], f["label"], f["bytes"]) for f in found] == [
        (b"cat/3.jpg", ("int64", [0]), ("bytes", [b""])),
        (b"cat/deep/1.jpg", ("int64", [0]), ("bytes", [b"one"])),
        (b"dog/2.jpg", ("int64", [1]), ("bytes", [b"two"])),
        (b"readme", ("int64", [-1]), ("bytes", [b"top"])),
    ]


def test_folder_of_one_format_is_expanded(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_tf_record(folder / "b.tfrecord", [b"2"])
    write_tf_record(folder / "a.tfrecord-00000-of-00001", [b"1"])
    assert run("convert", folder, tmp_path / "out").status == 0
    assert read_array_record(tmp_path / "out.array_record") == [b"1", b"2"]
    (folder / "c.parquet").write_bytes(b"")
    done = run("convert", folder, tmp_path / "out2")
    assert done.status == 1
    assert "several formats. Pass --from files" in done.err
    assert run("convert", folder, tmp_path / "all", "--from", "files").status == 0
    assert len(read_array_record(tmp_path / "all.array_record")) == 3


def test_output_inside_input_folder_is_rejected(tmp_path, photos):
    done = run("convert", photos, photos / "out" / "x")
    assert done.status == 1
    assert f"OUT would be in {photos}, whose files are the input" in done.err
    assert names(photos) == [".hidden", ".x", "cat", "dog", "readme"]


def test_output_inside_expanded_folder_is_rejected(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_tf_record(folder / "a.tfrecord", [b"1"])
    (tmp_path / "link").symlink_to(folder)
    for source, out in [
        (folder, folder / "out"),
        (folder, folder / "deep" / "out"),
        (tmp_path / "link", folder / "out"),
        (folder, tmp_path / "link" / "out"),
    ]:
        # The second attempt fails too.
        for _ in range(2):
            done = run("convert", source, out)
            assert done.status == 1
            assert f"OUT would be in {source}, whose files are the input" in done.err
            assert names(folder) == ["a.tfrecord"]
    # Allowed: a folder whose name only starts the same, and one that is not an input.
    for out in (tmp_path / "in2" / "out", folder / "out"):
        for _ in range(2):
            assert run("convert", folder / "a.tfrecord", out).status == 0


def test_link_loops_are_not_followed(tmp_path):
    folder = tmp_path / "in"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "x").write_bytes(b"x")
    (folder / "a" / "b" / "top").symlink_to(folder)
    (folder / "a" / "self").symlink_to(folder / "a")
    # Not a loop, so these files are read twice.
    (folder / "twin").symlink_to(folder / "a" / "b")
    done = run("convert", folder, tmp_path / "out", "--with-names")
    assert (done.status, done.err) == (0, "")
    found = map(features_of, read_array_record(tmp_path / "out.array_record"))
    assert [f["name"][1][0] for f in found] == [b"a/b/x", b"twin/x"]


@pytest.fixture(params=["pipe", "socket", "device"])
def no_file(request, tmp_path):
    """Return the path of an endless non-regular file, in its own folder."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "x"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("form", [None, *finding.FORMATS])
def test_only_regular_files_are_read(tmp_path, no_file, form):
    options = ("--from", form) if form else ()
    done = run("convert", no_file, tmp_path / "x", *options)
    assert (done.status, done.err) == (
        1,
        f"gristmill: {no_file}: not a regular file.\n",
    )
    options += ("--follow-links",)
    for other in ("a.tfrecord", "b", "c.jsonl"):
        done = run("convert", tmp_path / "in", tmp_path / "x", *options)
        assert (done.status, done.err) == (
            *(1, f"gristmill: {no_file}: not a regular file.\n"),
        )
        (tmp_path / "in" / other).write_bytes(b"")
        no_file = no_file.rename(no_file.with_name("0.tfrecord"))
    assert left(tmp_path) == []


def test_links_within_a_folder_are_followed(tmp_path):
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_bytes(b"a")
    (folder / "b").symlink_to("deep/a")
    (folder / "c").symlink_to(folder / "deep" / "a")
    (folder / "d").symlink_to("../in/deep")
    (tmp_path / "link").symlink_to(folder)
    for source in (folder, tmp_path / "link"):
        out = tmp_path / f"{source.name}.array_record"
        assert run("convert", source, out).status == 0
        assert read_array_record(out) == [b"a"] * 4


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("to", ["file", "folder", "parent", "twin"])
def test_links_out_of_folder_need_follow_links(tmp_path, to, deep):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("elsewhere", "in2"):  # The name "in2" only starts like "in".
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"secret")
    target = {
        "file": tmp_path / "elsewhere" / "x",
        "folder": tmp_path / "elsewhere",
        "parent": tmp_path,
        "twin": tmp_path / "in2" / "x",
    }[to]
    link = tmp_path / "in" / ("deep/link" if deep else "link")
    link.symlink_to(target)
    out = tmp_path / "made" / "x.array_record"
    done = run("convert", tmp_path / "in", out)
    assert done.status == 1
    assert done.err == (
        f"gristmill: {link}: a link to {target}, out of the folder. Pass"
        " --follow-links to read what such links lead to.\n"
    )
    assert not out.exists()
    done = run("convert", tmp_path / "in", out, "--follow-links")
    # The parent folder contains the output of the conversion itself.
    if to != "parent":
        assert (done.status, read_array_record(out)) == (0, [b"secret"])


def test_hidden_links_out_of_folder_are_ignored(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ".link").symlink_to("/etc/passwd")
    (tmp_path / "in" / "a").write_bytes(b"a")
    assert run("convert", tmp_path / "in", tmp_path / "x").status == 0
    assert read_array_record(tmp_path / "x.array_record") == [b"a"]


@pytest.mark.parametrize("target", ["nowhere", "/nowhere/at all", "link"])
def test_broken_links_are_an_error(tmp_path, target):
    (tmp_path / "in").mkdir()
    link = tmp_path / "in" / "link"
    link.symlink_to(target)
    expected = (1, "", f"gristmill: {link}: a broken link, to {target}.\n")
    for options in ((), ("--follow-links",)):
        assert run("convert", tmp_path / "in", tmp_path / "x", *options) == expected
    assert run("convert", link, tmp_path / "x") == expected
    assert run("inspect", link) == expected
    assert run("inspect", tmp_path / "in") == expected
