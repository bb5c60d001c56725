"""Open files sent to workers arrive as the same file at the same offset, or raise."""

# ruff: noqa: SIM115 (the tested files stay open for longer than a block)

import bz2
import codecs
import contextlib
import functools
import gzip
import io
import mmap
import os
import pathlib
import pickle
import random
import socket
import sys
import tarfile
import tempfile
import zipfile

import pytest

import gristmill as grain
from gristmill._base import object_path, open_files

TEXT = "zeile eins\nö zwei\r\nüü drei\n漢 vier\rfünf\n"


def again(thing):
    return pickle.loads(open_files.dumps(thing))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes(TEXT.encode() * 3)
    return path


class TestTextFiles:
    @pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
    @pytest.mark.parametrize(
        "encoding", ["utf-8", "utf-8-sig", "utf-16", "shift_jis", "ascii", "utf-7"]
    )
    def test_resume_at_same_offset_after_any_reads(self, path, encoding, newline):
        draw = random.Random(0)
        letters = "ab\n\r" if encoding == "ascii" else "aあ\n\rb漢"
        for size in (0, 1, 5, 300, 9_000, 30_000) * 3:
            content = "".join(draw.choices(letters, k=size))
            path.write_bytes(content.encode(encoding))
            with (
                open(path, encoding=encoding, newline=newline) as file,
                open(path, encoding=encoding, newline=newline) as twin,
            ):
                for _ in range(draw.choice([0, 1, 2, 50])):
                    count = draw.choice([1, 3, 100])
                    how = draw.choice(
                        [
                            lambda f, n=count: f.read(n),
                            lambda f: f.readline(),
                            lambda f: next(f, None),  # Disables tell().
                            lambda f: next(f, None),
                        ]
                    )
                    assert how(file) == how(twin)
                with again(file) as found:
                    rest = twin.readlines()
                    assert found.readlines() == rest
                assert file.readlines() == rest

    def test_are_reopened_with_same_options(self, path, monkeypatch):
        monkeypatch.chdir(path.parent)
        options = {"encoding": "latin-1", "errors": "replace", "buffering": 1}
        with open("rows.txt", **options) as file:
            file.mine = 7
            with again(file) as found:
                for name in ("name", "mode", "encoding", "errors", "mine"):
                    assert getattr(found, name) == getattr(file, name)
                assert found.line_buffering
                assert found.buffer.name == found.buffer.raw.name == "rows.txt"
                assert found.fileno() != file.fileno()

    def test_do_not_share_a_position(self, path):
        with open(path, encoding="utf-8") as file:
            file.readline()
            at = file.tell()
            with again(file) as found:
                assert found.readline() == "ö zwei\n"
                assert file.tell() == at
                found.seek(0)
                assert file.readline() == "ö zwei\n"

    def test_keep_identity_of_layers(self, path):
        with open(path, encoding="utf-8") as file:
            file.readline()
            buffer, raw, found, same = again([file.buffer, file.buffer.raw, file, file])
            with found:
                assert found is same
                assert found.buffer is buffer
                assert buffer.raw is raw
                assert found.readline() == "ö zwei\n"

    def test_resume_within_a_loop(self, path):
        with open(path, encoding="utf-8") as file:
            lines = []
            for line in file:
                lines.append(line)
                with again(file) as found:
                    lines_after = list(found)
                assert "".join(lines + lines_after) == path.read_text("utf-8")
            assert len(lines) == 15

    def test_sending_does_not_read_content(self, tmp_path):
        with open(tmp_path / "large", "wb") as large:
            large.write(b"first\n")
            large.truncate(1 << 40)
        with open(tmp_path / "large", encoding="ascii") as file:
            assert next(file) == "first\n"
            with again(file) as found:
                assert found.read(3) == "\0\0\0"

    def test_are_rejected_if_python_hides_newlines(self, path, monkeypatch):
        monkeypatch.setattr(open_files, "_can_find_newlines", lambda: False)
        with (
            open(path) as file,
            pytest.raises(TypeError, match=r"Python .* newline"),
        ):
            open_files.dumps(file)


class TestBinaryFiles:
    @pytest.mark.parametrize("buffering", [0, -1, 16])
    def test_resume_at_same_offset(self, path, buffering):
        with open(path, "rb", buffering) as file:
            file.read(5)
            with again(file) as found:
                assert type(found) is type(file)
                assert (found.name, found.mode) == (str(path), "rb")
                assert found.tell() == 5
                assert found.read() == file.read() == (TEXT.encode() * 3)[5:]

    def test_may_have_bytes_names(self, tmp_path):
        name = os.fsencode(tmp_path) + b"/\xff"
        with open(name, "wb") as file:
            file.write(b"content")
        with open(name, "rb") as file, again(file) as found:
            assert (found.name, found.read()) == (name, b"content")

    def test_inside_tar_archive_are_sent(self, tmp_path, path):
        with tarfile.open(tmp_path / "x.tar", "w") as archive:
            archive.add(path, "member")
        with tarfile.open(tmp_path / "x.tar") as archive, again(archive) as found:
            assert found.extractfile("member").read() == path.read_bytes()


class Holder:
    """A user's object with a file as an attribute."""

    def __init__(self, file):
        self.file = file


def removed(path):
    file = open(path)
    path.unlink()
    return file


def replaced(path):
    file = open(path)
    path.with_name("other").write_text("other rows")
    path.with_name("other").rename(path)
    return file


def pipe(path):
    end, other = os.pipe()
    os.close(other)
    return os.fdopen(end)


def named_pipe(path):
    os.mkfifo(path.with_name("pipe"))
    return open(os.open(path.with_name("pipe"), os.O_RDONLY | os.O_NONBLOCK), "rb")


def terminal(path):
    ours, theirs = os.openpty()
    os.close(theirs)
    return os.fdopen(ours, "rb", 0)


def of_socket(path):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        return ours.makefile("r")


def in_memory(path):
    return os.fdopen(os.memfd_create("rows"), "rb")


def of_a_name(path):
    return os.fdopen(os.open(path, os.O_RDONLY))


def closed(path):
    with open(path) as file:
        return file


def detached(path):
    file = open(path)
    file.detach().close()
    return file


REFUSED = {
    "moved or removed": [removed],
    "was replaced after it was opened": [replaced],
    "it is a pipe, a socket or a device": [
        *(pipe, named_pipe, terminal),
        lambda path: open("/dev/zero", "rb"),
    ],
    "it is open for writing": [
        *(lambda path, m=m: open(path, m) for m in ("w", "a", "r+", "w+", "wb", "rb+")),
        lambda path: open(path, "ab", 0),
        lambda path: open(path.with_name("new"), "x"),
        lambda path: tempfile.TemporaryFile(),
    ],
    "it was opened by its descriptor, without a name": [of_a_name],
    "(descriptor|writing)": [in_memory],
    "it reads from a SocketIO": [of_socket],
    "it reads from a GzipFile": [lambda path: gzip.open(path, "rt")],
    "it reads from a BZ2File": [lambda path: bz2.open(path, "rt")],
    "it reads from a BytesIO": [lambda path: io.TextIOWrapper(io.BytesIO(b"x"))],
    "it is removed when it is closed": [
        *(lambda path, m=m: tempfile.NamedTemporaryFile(m) for m in ("r", "rb", "w+")),
    ],
    "it is closed": [closed],
    "detached": [detached],
}


class TestRefusal:
    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    @pytest.mark.parametrize(
        ("reason", "make"),
        [(reason, make) for reason, makers in REFUSED.items() for make in makers],
    )
    def test_names_the_attribute_and_the_reason(self, path, reason, make):
        holder = Holder(make(path))
        with pytest.raises(TypeError, match=reason) as caught:
            open_files.dumps(holder)
        text = str(caught.value)
        assert text.startswith(f"cannot pickle '{type(holder.file).__module__}.")
        assert ": file is the open file " in text
        with contextlib.suppress(ValueError):
            holder.file.close()

    def test_applies_to_standard_input(self):
        with open(os.devnull) as null, pytest.raises(TypeError):
            open_files.dumps(Holder(null))
        with pytest.raises(TypeError, match="cannot pickle"):
            open_files.dumps(sys.__stdin__)

    def test_does_not_apply_to_standard_output(self, path, monkeypatch):
        with open(path, "w") as out, open(path, "w") as err:
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stderr", err)
            assert again([out, err]) == [out, err]

    @pytest.mark.parametrize(
        "opened",
        [
            functools.partial(gzip.open, mode="rb"),
            functools.partial(bz2.open, mode="rb"),
            functools.partial(codecs.open, encoding="utf-8"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:codecs.open:DeprecationWarning")
    def test_applies_to_compressed_files_like_pickle(self, path, opened):
        with opened(path) as file:
            with pytest.raises(TypeError):
                pickle.dumps(file)
            with pytest.raises(TypeError):
                open_files.dumps(file)

    def test_applies_to_zip_archives_and_mmaps_like_pickle(self, path):
        with zipfile.ZipFile(path.with_name("x.zip"), "w") as archive:
            archive.write(path)
        archive = zipfile.ZipFile(path.with_name("x.zip"))
        with archive, pytest.raises(TypeError):
            open_files.dumps(archive)
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with mapped, pytest.raises(TypeError):
                open_files.dumps(mapped)

    def test_does_not_apply_to_files_in_memory(self):
        text, data = io.StringIO("one\ntwo"), io.BytesIO(b"one two")
        text.readline()
        data.read(4)
        found_text, found_data = again([text, data])
        assert found_text.read() == "two"
        assert found_data.read() == b"two"

    def test_file_replaced_in_transit_raises(self, path):
        with open(path) as file:
            data = open_files.dumps(file)
        path.with_name("other").write_text("other rows")
        path.with_name("other").rename(path)
        with pytest.raises(ValueError, match=f"{path} was replaced"):
            pickle.loads(data)
        path.unlink()
        with pytest.raises(FileNotFoundError):
            pickle.loads(data)


class Slotted:
    __slots__ = ("file",)


def test_object_paths_are_python_expressions():
    wanted = io.StringIO()
    slotted = Slotted()
    slotted.file = wanted

    def closure():
        return wanted

    def default(x=wanted):
        return x

    for root, expected in [
        (Holder(wanted), "file"),
        (Holder([1, {"a": (wanted,)}]), "file[1]['a'][0]"),
        (Holder(slotted), "file.file"),
        (Holder(closure), "file's variable wanted"),
        (Holder(default), "file's argument x"),
        (Holder(functools.partial(print, wanted)), "file.args[0]"),
        (Holder(functools.partial(print, end=wanted)), "file.keywords['end']"),
        (Holder(Holder(wanted).__init__), "file.__self__.file"),
        ({"a": Holder(wanted)}, "['a'].file"),
        (grain.MapDataset.source([Holder(wanted)]).map(len), "[0].file"),
        (Holder(None), ""),
    ]:
        found = object_path.path_to(wanted, root)
        assert found.endswith(expected) if expected else not found, root


class Lines:
    """Serves the lines of a file by number."""

    def __init__(self, path, skip=0):
        self.file = open(path, encoding="utf-8")
        for _ in range(skip):
            next(self.file)
        self.begin = [0]
        with open(path, encoding="utf-8") as counted:
            while counted.readline():
                self.begin.append(counted.tell())

    def __len__(self):
        return len(self.begin) - 1

    def __getitem__(self, index):
        self.file.seek(self.begin[index])
        return self.file.readline()

    def __repr__(self):
        return "Lines"


class Rest(Lines):
    """Returns the content of a file after its current offset."""

    def __getitem__(self, index):
        at = self.file.tell()
        rest = self.file.read()
        self.file.seek(at)
        return index, rest


def loaded(source, workers, operations=()):
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(len(source), grain.NoSharding(), num_epochs=1),
        operations=operations,
        worker_count=workers,
    )
    return list(loader)


class Wrap(grain.MapTransform):
    def __init__(self, file):
        self.file = file

    def map(self, element):
        return len(self.file.name), element


class Opened(grain.MapTransform):
    """Returns open files whose offset is at the second line."""

    def __init__(self, path, mode):
        self.path, self.mode = path, mode

    def map(self, element):
        file = open(self.path, self.mode)
        file.readline()
        return {"element": element, "file": file}


@pytest.mark.multiprocess
class TestLoaders:
    @pytest.mark.claim(
        "If a source holds an open text file, each worker gets a copy of its "
        "content with different offsets; an open binary file raises an error"
    )
    def test_return_file_rows_in_workers(self, path):
        source = Lines(path)
        with source.file:
            expected = path.read_text("utf-8").splitlines(keepends=True)
            assert loaded(source, 0) == loaded(source, 2) == expected

    def test_begin_after_lines_already_iterated(self, path):
        source = Rest(path, skip=1)
        with source.file:
            expected = path.read_text("utf-8").partition("\n")[2]
            assert loaded(source, 2) == [(i, expected) for i in range(15)]

    def test_return_file_rows_in_mp_prefetch(self, path):
        source = Lines(path)
        with source.file:
            dataset = grain.MapDataset.source(source).to_iter_dataset()
            expected = path.read_text("utf-8").splitlines(keepends=True)
            options = grain.MultiprocessingOptions(num_workers=2)
            assert list(dataset.mp_prefetch(options)) == expected

    def test_accept_long_sources_with_a_file(self, path):
        with open(path, encoding="utf-8") as file:
            file.readline()
            source = [None] * 5000 + [file]
            loader = grain.load(
                source,
                num_epochs=1,
                worker_count=1,
                transformations=[FirstLine()],
            )
            assert [line for line in loader if line] == ["ö zwei\n"]

    @pytest.mark.claim(
        "If a source holds an open text file, each worker gets a copy of its "
        "content with different offsets; an open binary file raises an error"
    )
    @pytest.mark.parametrize("place", ["source", "operation", "chain"])
    def test_errors_name_the_attribute(self, path, place):
        source = Lines(path)
        source.file.close()
        source.file = file = open(path, "a")
        with file, pytest.raises(TypeError) as caught:
            if place == "source":
                loaded(source, 1)
            elif place == "operation":
                loaded([1, 2], 1, [Wrap(file)])
            else:
                dataset = grain.MapDataset.source(source).map(len).to_iter_dataset()
                options = grain.MultiprocessingOptions(num_workers=1)
                next(iter(dataset.mp_prefetch(options)))
        expected = {
            "source": ": source.file is the open file",
            "operation": "file is the open file",
            "chain": ": source.file is the open file",
        }[place]
        assert expected in str(caught.value)
        assert "it is open for writing." in str(caught.value)
        assert any("cannot be pickled" in note for note in caught.value.__notes__)

    @pytest.mark.parametrize("mode", ["r", "rb"])
    def test_return_worker_files_at_same_offset(self, path, mode):
        first, second = loaded([1, 2], 1, [Opened(path, mode)])
        with first["file"] as one, second["file"] as other:
            expected = b"\xc3\xb6 zwei\r\n" if mode == "rb" else "ö zwei\n"
            assert one.readline() == other.readline() == expected
            assert one.fileno() != other.fileno()

    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    def test_reject_worker_files_open_for_writing(self, path):
        with pytest.raises(TypeError, match=r"'file'] is the open file .* for writing"):
            loaded([1], 1, [Opened(path, "r+")])


class FirstLine(grain.MapTransform):
    def map(self, element):
        return element.readline() if element else ""


def test_file_opened_by_pathlib_is_sent(tmp_path):
    path = pathlib.Path(tmp_path, "x")
    path.write_text("content")
    with path.open() as file, again(file) as found:
        assert found.read() == "content"
