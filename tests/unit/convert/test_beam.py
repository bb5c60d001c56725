"""Conversion by Apache Beam writes each requested file exactly once."""

import ast
import functools
import importlib.util
import inspect
import os
import pickle
import subprocess
import sys

import pytest
from apache_beam.io.filesystem import FileMetadata, MatchResult
from apache_beam.io.localfilesystem import LocalFileSystem

from gristmill import _core, beam, errors
from gristmill._convert import beam_files
from support.cli import names, read_array_record, shards, write_tf_record

SCHEME = "gristmilltest"
OPTIONS = {"runner": "DirectRunner"}


class ElsewhereFileSystem(LocalFileSystem):
    """A file system whose paths only Beam can open: a folder under another name."""

    folder = ""

    @classmethod
    def scheme(cls):
        return SCHEME

    def local(self, path):
        return path.replace(f"{SCHEME}://bucket", self.folder)

    def join(self, basepath, *paths):
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path):
        return tuple(path.rsplit("/", 1))

    def mkdirs(self, path):
        super().mkdirs(self.local(path))

    def create(self, path, *arguments, **options):
        return super().create(self.local(path), *arguments, **options)

    def open(self, path, *arguments, **options):
        return super().open(self.local(path), *arguments, **options)

    def exists(self, path):
        return super().exists(self.local(path))

    def delete(self, paths):
        super().delete([self.local(path) for path in paths])

    def rename(self, sources, destinations):
        super().rename(
            [self.local(path) for path in sources],
            [self.local(path) for path in destinations],
        )

    def match(self, patterns, limits=None):
        return [
            MatchResult(
                pattern,
                [
                    FileMetadata(
                        each.path.replace(self.folder, f"{SCHEME}://bucket"),
                        each.size_in_bytes,
                        each.last_updated_in_seconds,
                    )
                    for each in found.metadata_list
                ],
            )
            for pattern, found in zip(
                patterns, super().match(list(map(self.local, patterns))), strict=True
            )
        ]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return the root of the other file system, and the local folder it maps to."""
    monkeypatch.setattr(ElsewhereFileSystem, "folder", str(tmp_path))
    return f"{SCHEME}://bucket", tmp_path


@pytest.fixture
def inputs(tmp_path):
    """Write three files and return their records."""
    parts = [[b"%d-%d" % (f, i) * 50 for i in range(200)] for f in range(3)]
    parts[1].append(b"")
    (tmp_path / "in").mkdir()
    for number, compression in enumerate(("", "gzip", "zlib")):
        path = tmp_path / "in" / f"{number}.tfrecord"
        write_tf_record(path, parts[number], compression)
    return parts


def test_match_shards_converts_each_file_to_one(tmp_path, inputs):
    args = {"input": f"{tmp_path}/in/*.tfrecord", "output": f"{tmp_path}/out/x"}
    pipeline = beam.convert_tf_to_arrayrecord_disk_match_shards(
        args, OPTIONS, group_size=10, compression="brotli:2"
    )
    pipeline.run().wait_until_finish()
    paths = [
        tmp_path / "out" / f"x-{shard:05d}-of-00003.arrayrecord" for shard in range(3)
    ]
    assert [read_array_record(path) for path in paths] == inputs
    assert names(tmp_path / "out") == [path.name for path in paths]
    assert "group_size:10,transpose:false" in _core.RecordFile(str(paths[0])).options


def test_transforms_read_and_write_on_any_file_system(elsewhere, inputs):
    url, folder = elsewhere
    with beam.beam.Pipeline(options=beam.PipelineOptions.from_dictionary(OPTIONS)) as p:
        records = p | beam.ReadTFRecords(f"{url}/in/*.tfrecord")
        _ = records | beam.WriteArrayRecord(f"{url}/x", num_shards=2)
    found = read_array_record(*shards(folder, "x", 2))
    assert sorted(found) == sorted(record for part in inputs for record in part)
    # Beam's folder of temporary files may remain, but must be empty.
    rest = [path for path in folder.glob("beam-temp-*") if list(path.iterdir())]
    assert rest == []


def test_missing_arguments_come_from_command_line(tmp_path, inputs, monkeypatch):
    arguments = ["--input", f"{tmp_path}/in/0.tfrecord", "--output", f"{tmp_path}/x"]
    monkeypatch.setattr(sys, "argv", ["script", *arguments, "--runner=DirectRunner"])
    pipeline = beam.convert_tf_to_arrayrecord_disk(num_shards=1)
    pipeline.run().wait_until_finish()
    path = tmp_path / "x-00000-of-00001.arrayrecord"
    assert sorted(read_array_record(path)) == sorted(inputs[0])


# Conversion of one file by a worker


def test_converting_twice_leaves_one_file(elsewhere, inputs):
    url, folder = elsewhere
    for final in (f"{url}/out/x.arrayrecord", f"{folder}/out/x.arrayrecord"):
        for _ in range(2):
            source = f"{url}/in/1.tfrecord"
            assert beam_files.convert_file(source, final, "group_size:1") == final
        assert names(folder / "out") == ["x.arrayrecord"]
        assert read_array_record(folder / "out" / "x.arrayrecord") == inputs[1]


def test_failed_conversion_leaves_no_files(elsewhere, inputs, monkeypatch, tmp_path):
    url, folder = elsewhere
    path = folder / "in" / "0.tfrecord"
    path.write_bytes(path.read_bytes()[:-1])
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(beam_files.tempfile, "tempdir", str(tmp_path / "temporary"))
    for final in (f"{url}/out/x.arrayrecord", f"{folder}/out/x.arrayrecord"):
        with pytest.raises(errors.CorruptRecord, match="record 199"):
            beam_files.convert_file(f"{url}/in/0.tfrecord", final, "group_size:1")
        assert names(folder / "out") == []
        assert names(tmp_path / "temporary") == []


@pytest.mark.parametrize(
    ("overwrite", "expected"),
    [(False, "a.tfrecord.arrayrecord"), (True, "a.arrayrecord")],
)
def test_output_names_keep_or_replace_extension(tmp_path, overwrite, expected):
    name = functools.partial(
        beam._converted_name, str(tmp_path), ".arrayrecord", overwrite
    )
    pairs = beam._pairs(["/in/b.tfrecord", "/in/a.tfrecord"], name)
    assert pairs[0] == ("/in/a.tfrecord", str(tmp_path / expected))
    with pytest.raises(ValueError, match=r"got /.* for both /"):
        beam._pairs(["/2/a.tfrecord", "/1/a.tfrecord"], name)


def test_output_names_on_bucket_follow_inputs(elsewhere, inputs):
    url, folder = elsewhere
    args = {"input": f"{url}/in/0.tfrecord", "output": f"{url}/out"}
    pipeline = beam.convert_tf_to_arrayrecord_gcs(True, ".ar", args, OPTIONS)
    pipeline.run().wait_until_finish()
    assert names(folder / "out") == ["0.ar"]
    assert read_array_record(folder / "out" / "0.ar") == inputs[0]


# Arguments


def test_invalid_arguments_are_rejected():
    args = {"input": "a", "output": "b"}
    with pytest.raises(ValueError, match="num_shards must be at least 0, got -1"):
        beam.WriteArrayRecord("x", num_shards=-1)
    with pytest.raises(ValueError, match=r"compression must be none.* got 'lz4'"):
        beam.WriteArrayRecord("x", compression="lz4")
    with pytest.raises(ValueError, match="group_size must be at least 1, got 0"):
        beam.convert_tf_to_arrayrecord_disk(1, args, {}, group_size=0)
    with pytest.raises(ValueError, match="args must have 'output'"):
        beam.convert_tf_to_arrayrecord_disk_match_shards({"input": "a"}, OPTIONS)


def test_transforms_can_be_sent_to_workers():
    for transform in (
        beam.ReadTFRecords("x"),
        beam.WriteArrayRecord("x", ".y", 3, compression="snappy"),
    ):
        copy = pickle.loads(pickle.dumps(transform))
        assert type(copy) is type(transform)


def test_signatures_match_array_record():
    # Read and not imported, because importing needs Google's cloud packages.
    (folder,) = importlib.util.find_spec("array_record").submodule_search_locations
    with open(f"{folder}/beam/pipelines.py") as file:
        functions = {
            node.name: node.args
            for node in ast.parse(file.read()).body
            if isinstance(node, ast.FunctionDef)
        }
    for name in (
        "convert_tf_to_arrayrecord_disk",
        "convert_tf_to_arrayrecord_disk_match_shards",
        "convert_tf_to_arrayrecord_gcs",
    ):
        parameters = inspect.signature(getattr(beam, name)).parameters.values()
        ours = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        assert [p.name for p in ours] == [each.arg for each in functions[name].args]
        theirs = functions[name].defaults
        for parameter, default in zip(ours[:-2], theirs[:-2], strict=True):
            assert parameter.default == ast.literal_eval(default)


def test_importing_gristmill_does_not_import_beam():
    script = "import sys, gristmill; sys.exit('apache_beam' in sys.modules)"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
