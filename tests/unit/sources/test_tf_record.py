"""Tests of reading TFRecord files by record number, compared with TensorFlow."""

import gzip
import itertools
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import threading

import fsspec
import numpy as np
import pytest

import gristmill as g
from faults.scripts import command, environment, run
from gristmill import _core, errors, sources, transforms
from gristmill.sources import _remote, _sidecars, _tf_record
from support import index_files, tf_record_files
from support.example_samples import example, float_list, int_list
from support.tf_record_files import framed, write

NAMES = ["mixed", "tiny", "empty", "one", "none"]
RECORDS = [struct.pack("<q", i) * (1 + i % 9) for i in range(500)]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    return tf_record_files.by_tensorflow(tmp_path_factory)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Use a temporary folder as the cache, and return it."""
    folder = tmp_path / "the cache"
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "records.tfrecord", RECORDS)


def index_of(path):
    return pathlib.Path(path).with_name(f".{path.name}.gristmill-index")


def forge(path, begins, end=None):
    """Write an index of `path` with given offsets and a valid checksum and stamp."""
    found = path.stat()
    end = found.st_size if end is None else end
    index = index_files.of_tf_record(found.st_size, found.st_mtime_ns, begins, end)
    index_of(path).write_bytes(index)


def is_loaded(path):
    """Return whether opening the file loads its index."""
    there = filter(os.path.exists, _sidecars.sidecar_paths(str(path), "tf_record"))
    kept = [shutil.copy2(name, f"{name}.copy") for name in there]
    progress = _core.ScanProgress()
    _core.TfRecordFile(str(path), "all", "pread", kept, progress)
    for name in kept:
        os.unlink(name)
    return progress.done_bytes == 0


class TestReading:
    @pytest.mark.parametrize("access", ["pread", "mmap"])
    @pytest.mark.parametrize("verify", ["all", "headers", "none"])
    @pytest.mark.parametrize("name", NAMES)
    def test_records_match_tensorflow(self, oracle, name, verify, access):
        records = oracle.contents[name]
        path = oracle.folder / f"{name}.tfrecord"
        source = sources.TFRecordDataSource(path, verify=verify, access=access)
        assert len(source) == len(records)
        assert list(source) == records
        everything = range(len(records))
        assert [source[i] for i in reversed(everything)] == records[::-1]
        keys = np.random.default_rng(1).integers(0, max(1, len(records)), 300)
        keys = keys[: 300 * bool(records)]
        assert source.__getitems__(keys) == [records[k] for k in keys]
        assert source.sizes(keys).tolist() == [len(records[k]) for k in keys]
        source.close()
        assert source.__getitems__(list(everything)[-3:]) == records[-3:]

    def test_eight_threads_share_a_source(self, oracle):
        records = oracle.contents["mixed"]
        source = sources.TFRecordDataSource(oracle.folder / "mixed.tfrecord")
        wrong = []

        def read(seed):
            for key in np.random.default_rng(seed).integers(0, len(records), 200):
                if source[key] != records[key]:
                    wrong.append(key)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_pickle_has_no_index(self, file):
        source = sources.TFRecordDataSource(file)
        stored = pickle.dumps(source)
        assert len(stored) < 1000
        again = pickle.loads(stored)
        assert list(again) == RECORDS
        assert repr(again) == repr(source)

    @pytest.mark.multiprocess
    def test_loader_with_workers_gives_same_records(self, file):
        def batches(workers):
            loader = g.DataLoader(
                data_source=sources.TFRecordDataSource(file),
                sampler=g.IndexSampler(
                    len(RECORDS), g.NoSharding(), shuffle=True, num_epochs=2, seed=3
                ),
                operations=[First(), g.Batch(16)],
                worker_count=workers,
            )
            return [batch.tolist() for batch in loader]

        plain = batches(0)
        numbers = list(itertools.chain(*plain))
        assert sorted(numbers) == sorted(2 * list(range(len(RECORDS))))
        assert numbers != sorted(numbers)
        assert sorted(itertools.chain(*batches(2))) == sorted(numbers)

    def test_keys_out_of_range_are_refused(self, file):
        source = sources.TFRecordDataSource(file)
        for key in (-1, len(RECORDS)):
            with pytest.raises(ValueError, match=f"got {key} for the 500 records"):
                source[key]
            with pytest.raises(ValueError, match=f"got {key} for the 500 records"):
                source.__getitems__([0, key])

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.multiprocess
    def test_examples_become_batches(self, tmp_path, workers):
        path = tmp_path / "examples"
        examples = [
            example(("id", int_list(i)), ("x", float_list(i / 2, i / 4)))
            for i in range(64)
        ]
        write(path, examples)
        features = {
            "id": transforms.FixedLen((), np.int64),
            "x": transforms.FixedLen((2,), np.float32),
        }
        source = sources.TFRecordDataSource(path)
        loader = g.DataLoader(
            data_source=source,
            sampler=g.IndexSampler(
                64, g.NoSharding(), shuffle=True, num_epochs=1, seed=5
            ),
            operations=[transforms.ParseExample(features), g.Batch(8)],
            worker_count=workers,
        )
        batches = list(loader)
        ids = np.concatenate([batch["id"] for batch in batches])
        assert sorted(ids.tolist()) == list(range(64))
        assert ids.tolist() != list(range(64))
        x = np.concatenate([batch["x"] for batch in batches])
        assert (x == np.stack([ids / 2, ids / 4], axis=1)).all()

    def test_loader_skips_bad_record(self, file):
        whole = bytearray(file.read_bytes())
        whole[sum(len(framed(record)) for record in RECORDS[:7]) + 12] ^= 1
        file.write_bytes(whole)
        loader = g.DataLoader(
            data_source=sources.TFRecordDataSource(file),
            sampler=g.IndexSampler(
                len(RECORDS), g.NoSharding(), shuffle=False, num_epochs=1, seed=0
            ),
            operations=[First(), g.Batch(8)],
            on_error="skip",
        )
        found = np.concatenate(list(loader)).tolist()
        assert found == [i for i in range(len(RECORDS)) if i != 7]


class First(g.MapTransform):
    """Returns the number at the start of a record."""

    def map(self, element):
        return np.frombuffer(element, np.int64, 1)[0]


class TestPaths:
    @pytest.fixture
    def shards(self, tmp_path):
        (tmp_path / "shards").mkdir()
        return [
            write(
                tmp_path / "shards" / f"a.tfrecord-{i:05d}-of-00003",
                RECORDS[100 * i : 100 * i + 100],
            )
            for i in range(3)
        ]

    def test_several_files_are_one_list(self, shards):
        source = sources.TFRecordDataSource([shards[1], str(shards[0])])
        assert list(source) == RECORDS[100:200] + RECORDS[:100]
        assert source.paths == [str(shards[1]), str(shards[0])]

    @pytest.mark.parametrize("name", ["a.*", "a.tfrecord@3", "a.tfrecord@*", "*"])
    def test_shard_patterns_are_expanded(self, shards, name):
        path = shards[0].parent / name
        # Twice, because the saved indices must not match the pattern.
        for _ in range(2):
            source = sources.TFRecordDataSource(path)
            assert list(source) == RECORDS[:300]
            assert source.paths == [str(shard) for shard in shards]

    def test_patterns_without_files_are_refused(self, shards):
        folder = shards[0].parent
        with pytest.raises(
            FileNotFoundError, match=r"match the pattern .*z\*, found none"
        ):
            sources.TFRecordDataSource(folder / "z*")
        with pytest.raises(FileNotFoundError, match=r"Expected shards of .*z-00000"):
            sources.TFRecordDataSource(folder / "z@*")
        shards[1].unlink()
        with pytest.raises(FileNotFoundError, match=r"missing .*-00001-of-00003"):
            sources.TFRecordDataSource(folder / "a.tfrecord@*")
        with pytest.raises(FileNotFoundError, match="-00001-of-00003"):
            sources.TFRecordDataSource(folder / "a.tfrecord@3")

    def test_existing_file_named_like_pattern_is_read(self, tmp_path):
        path = write(tmp_path / "a[1]*@3", RECORDS[:5])
        assert list(sources.TFRecordDataSource(path)) == RECORDS[:5]

    @pytest.mark.parametrize(
        ("paths", "error", "text"),
        [
            ([], ValueError, "paths must have .*an empty list"),
            (5, TypeError, "paths must be .*got a int"),
            ([b"x"], TypeError, "paths must .*got a bytes"),
        ],
    )
    def test_paths_of_wrong_type_are_refused(self, paths, error, text):
        with pytest.raises(error, match=text):
            sources.TFRecordDataSource(paths)

    def test_reprs_of_different_files_differ(self, shards):
        one, other = map(sources.TFRecordDataSource, shards[:2])
        assert repr(one) != repr(other)
        assert repr(one) == repr(sources.TFRecordDataSource(shards[0], verify="none"))

    @pytest.mark.parametrize(
        ("option", "text"),
        [
            ({"verify": "some"}, "must be 'all', 'headers' or 'none'"),
            ({"access": "read"}, "must be 'pread' or 'mmap'"),
        ],
    )
    def test_unknown_options_are_refused(self, file, option, text):
        with pytest.raises(ValueError, match=text):
            sources.TFRecordDataSource(file, **option)


class TestIndex:
    def test_index_is_made_once(self, file):
        assert not is_loaded(file)
        sources.TFRecordDataSource(file)
        made = index_of(file).stat()
        assert is_loaded(file)
        assert list(sources.TFRecordDataSource(file)) == RECORDS
        assert index_of(file).stat() == made
        groups = -(-len(RECORDS) // 64)
        # Each offset in a group takes at most two bytes.
        assert made.st_size <= 80 + 16 * (groups + 1) + 2 * len(RECORDS) + 8

    def test_changed_file_gets_new_index(self, file):
        sources.TFRecordDataSource(file)
        write(file, RECORDS[::-1])
        assert list(sources.TFRecordDataSource(file)) == RECORDS[::-1]
        write(file, RECORDS[:70])
        assert list(sources.TFRecordDataSource(file)) == RECORDS[:70]
        assert is_loaded(file)

    def test_damaged_index_is_rebuilt(self, file):
        sources.TFRecordDataSource(file)
        good = index_of(file).read_bytes()
        for at in (0, 8, 13, 20, 30, 35, 39, 40, 79, 80, len(good) - 1):
            bad = bytearray(good)
            bad[at] ^= 4
            index_of(file).write_bytes(bad)
            assert not is_loaded(file)
            index_of(file).write_bytes(good[:at])
            assert not is_loaded(file)
            assert list(sources.TFRecordDataSource(file)) == RECORDS
            assert index_of(file).read_bytes() == good

    def test_index_dir_chooses_folder_of_index(self, tmp_path, cache):
        folder = tmp_path / "new" / "indices"
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            path = write(tmp_path / name / "x.tfrecord", [name.encode()])
            source = sources.TFRecordDataSource(path, index_dir=folder)
            assert list(source) == [name.encode()]
            assert os.listdir(path.parent) == ["x.tfrecord"]
        assert len(os.listdir(folder)) == 2
        assert not cache.exists()
        again = pickle.loads(pickle.dumps(source))
        assert list(again) == [b"b"]

    def test_read_only_folder_saves_index_in_cache(self, file, cache, caplog):
        with open(file, "rb") as opened:
            # Not even root can create files in this folder.
            path = f"/proc/self/fd/{opened.fileno()}"
            for _ in range(2):
                assert list(sources.TFRecordDataSource(path)) == RECORDS
            assert is_loaded(path)
        assert len(os.listdir(cache / "tf_record")) == 1
        assert caplog.records == []

    def test_records_are_read_if_index_cannot_be_saved(self, file, monkeypatch, caplog):
        monkeypatch.setenv("GRISTMILL_CACHE_DIR", "/proc/self/nothing")
        monkeypatch.setattr(_sidecars, "SHARED_MEMORY", "/proc/self/nothing")
        with open(file, "rb") as opened:
            path = f"/proc/self/fd/{opened.fileno()}"
            assert list(sources.TFRecordDataSource(path)) == RECORDS
        [record] = caplog.records
        assert f"The index of {path} cannot be saved" in record.getMessage()
        assert "Set GRISTMILL_CACHE_DIR, or index_dir=" in record.getMessage()

    @pytest.mark.parametrize("access", ["pread", "mmap"])
    @pytest.mark.parametrize("verify", ["all", "headers", "none"])
    def test_forged_offsets_are_refused(self, file, verify, access):
        ends = [*itertools.accumulate(16 + len(record) for record in RECORDS)]
        forge(file, [0, ends[0] + 3, *ends[1:-1]])
        source = sources.TFRecordDataSource(file, verify=verify, access=access)
        assert len(source) == len(RECORDS)
        for key in (0, 1):
            with pytest.raises(errors.CorruptRecord) as caught:
                source[key]
            assert f"{file}: record {key} at offset" in str(caught.value)
            assert str(caught.value).endswith(f"wrong: delete {index_of(file)}")
        assert source.__getitems__(range(2, 500)) == RECORDS[2:]
        index_of(file).unlink()
        assert list(sources.TFRecordDataSource(file, verify=verify)) == RECORDS

    @pytest.mark.parametrize(
        ("begins", "end"),
        [([0], 2**63), ([0, 2**62], 2**64 - 1), ([], 0), ([0, 16], 50)],
    )
    def test_index_with_wrong_end_is_rebuilt(self, file, begins, end):
        forge(file, begins, end)
        assert not is_loaded(file)
        assert list(sources.TFRecordDataSource(file, verify="none")) == RECORDS

    @pytest.mark.parametrize("verify", ["all", "headers", "none"])
    def test_forged_overlapping_records_are_refused(self, file, verify):
        forge(file, range(10_000))
        source = sources.TFRecordDataSource(file, verify=verify)
        assert len(source) == 10_000
        text = "lists 1 bytes for it, expected at least 16"
        with pytest.raises(errors.CorruptRecord, match=text):
            source[7]

    def test_pipe_in_place_of_index_is_replaced(self, file):
        os.mkfifo(index_of(file))
        assert list(sources.TFRecordDataSource(file)) == RECORDS
        assert is_loaded(file)

    def test_cache_folder_follows_environment(self, monkeypatch):
        monkeypatch.delenv("GRISTMILL_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", "/x")
        assert _sidecars.cache_dir() == "/x/gristmill"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/home/me")
        assert _sidecars.cache_dir() == "/home/me/.cache/gristmill"

    @pytest.mark.multiprocess
    def test_two_processes_can_make_index_at_once(self, tmp_path):
        path = write(tmp_path / "big.tfrecord", RECORDS * 400)
        program = command("tf_record/index_made_at_once", path)
        pipe = subprocess.PIPE
        with (
            subprocess.Popen(
                program, env=environment(), stdin=pipe, stdout=pipe, text=True
            ) as one,
            subprocess.Popen(
                program, env=environment(), stdin=pipe, stdout=pipe, text=True
            ) as other,
        ):
            for process in (one, other):
                assert process.stdout.readline() == "here\n"
            for process in (one, other):
                process.stdin.write("\n")
                process.stdin.flush()
            answers = [process.communicate()[0] for process in (one, other)]
        assert answers == [f"200000 {len(RECORDS[499])}\n"] * 2
        assert sorted(os.listdir(tmp_path)) == [
            ".big.tfrecord.gristmill-index",
            path.name,
        ]
        assert is_loaded(path)

    def test_many_files_are_indexed(self, tmp_path):
        paths = [
            write(tmp_path / f"{i}.tfrecord", RECORDS[i : 2 * i]) for i in range(40)
        ]
        source = sources.TFRecordDataSource(paths)
        assert list(source) == list(
            itertools.chain(*(RECORDS[i : 2 * i] for i in range(40)))
        )
        assert all(map(is_loaded, paths))
        paths[17].write_bytes(b"no records at all")
        with pytest.raises(errors.CorruptRecord, match=r"17\.tfrecord: not a TFRecord"):
            sources.TFRecordDataSource(paths)

    @pytest.mark.multiprocess
    def test_more_files_than_descriptors_are_indexed(self, tmp_path):
        for i in range(100):
            write(tmp_path / f"{i}.tfrecord", RECORDS[i : i + 1])
        assert run("tf_record/few_descriptors", f"{tmp_path}/*.tfrecord") == "100\n"

    def test_progress_is_logged(self, file, caplog):
        report = _tf_record._Report([3 * 10**9, 10**9])
        report.update()
        assert caplog.records == []  # No file has been read to its end.
        _core.TfRecordFile(str(file), "all", "pread", [], report.progress[1])
        report.update()
        report.update()  # Too soon for another line.
        report.finish()
        said, ended = [record.getMessage() for record in caplog.records]
        assert said == "Indexing 2 TFRecord files, once: 0.0 of 4.0 GB"
        assert ended.startswith("Indexed in ")

    def test_progress_is_shown_on_a_terminal(self, file, monkeypatch, capsys):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setitem(sys.modules, "rich", None)
        report = _tf_record._Report([3 * 10**9, 10**9])
        _core.TfRecordFile(str(file), "all", "pread", [], report.progress[0])
        report.update()
        report.finish()
        _, bar, *after = capsys.readouterr().err.split("\r")
        assert bar.endswith("]   0% 0/4,000 MB indexed of 2 TFRecord files, once")
        assert [part.strip() for part in after] == ["", ""]

    def test_progress_without_a_known_end_is_counted(self, file, monkeypatch, capsys):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        report = _tf_record._Report([10**9, None])
        _core.TfRecordFile(str(file), "all", "pread", [], report.progress[0])
        report.update()
        report.finish()
        shown = capsys.readouterr().err.split("\r")
        assert [part.rstrip() for part in shown] == [
            *("", "0 MB indexed of 2 TFRecord files, once"),
            *("0 MB indexed of 2 TFRecord files, once", "", ""),
        ]

    def test_progress_counts_bytes_of_file(self, file):
        progress = _core.ScanProgress()
        _core.TfRecordFile(str(file), "all", "pread", [], progress)
        assert progress.done_bytes == file.stat().st_size
        progress.cancel()
        with pytest.raises(OSError, match="indexing was cancelled"):
            _core.TfRecordFile(str(file), "all", "pread", [], progress)


class TestUrls:
    """Tests of files at URLs, with fsspec's ``memory://`` as an example."""

    @pytest.fixture
    def urls(self):
        filesystem = fsspec.filesystem("memory")
        urls = []
        for i in range(3):
            urls.append(f"memory://tf_record/a-{i:05d}-of-00003")
            data = b"".join(map(framed, RECORDS[100 * i : 100 * i + 100]))
            filesystem.pipe(urls[-1], data)
        yield urls
        filesystem.rm("/tf_record", recursive=True)

    @pytest.mark.parametrize("name", ["*", "a@3", "a@*", "a-0000[012]-*"])
    def test_patterns_of_urls_are_read(self, urls, name, cache):
        for _ in range(2):
            source = sources.TFRecordDataSource(f"memory://tf_record/{name}")
            assert source.__getitems__([299, 0, 150]) == [
                RECORDS[i] for i in (299, 0, 150)
            ]
            assert list(source) == RECORDS[:300]
        assert len(os.listdir(cache / "tf_record")) == 3

    def test_index_of_url_is_made_once(self, urls, cache):
        sources.TFRecordDataSource(urls)
        remote = _remote.RemoteFile(urls[0])
        kept = _sidecars.sidecar_paths(urls[0], "tf_record")
        progress = _core.ScanProgress()
        file = _core.TfRecordFile(remote, "all", "pread", kept, progress)
        assert file.index_path == kept[0]
        assert progress.done_bytes == 0
        fsspec.filesystem("memory").pipe(urls[0], framed(b"another"))
        assert sources.TFRecordDataSource(urls[0])[0] == b"another"

    def test_urls_are_streamed(self, urls):
        assert list(sources.read_tf_records(urls[0])) == RECORDS[:100]
        stream = sources.read_tf_records(urls[0])
        next(stream)
        rest = sources.read_tf_records(urls[0], position=stream.position)
        assert list(rest) == RECORDS[1:100]
        packed = gzip.compress(b"".join(map(framed, RECORDS)))
        fsspec.filesystem("memory").pipe("memory://tf_record/b.gz", packed)
        assert list(sources.read_tf_records("memory://tf_record/b.gz")) == RECORDS

    def test_file_urls_are_read(self, file):
        source = sources.TFRecordDataSource(f"file://{file}")
        assert list(source) == RECORDS
        assert is_loaded(file)
        assert list(sources.read_tf_records(f"file://{file}")) == RECORDS

    def test_missing_urls_are_refused(self, urls, file):
        with pytest.raises(FileNotFoundError, match=r"memory://.*z\*, found none"):
            sources.TFRecordDataSource("memory://tf_record/z*")
        with pytest.raises(FileNotFoundError, match="memory://tf_record/z"):
            sources.TFRecordDataSource("memory://tf_record/z")
        with pytest.raises(ValueError, match="in a chain of URLs"):
            sources.TFRecordDataSource("simplecache::memory://tf_record/z*")
        with pytest.raises(ValueError, match="storage_options needs a URL"):
            sources.TFRecordDataSource(file, storage_options={"anon": True})


class TestDamage:
    @pytest.mark.claim("Files")
    @pytest.mark.parametrize("access", ["pread", "mmap"])
    def test_flipped_bit_fails_its_record_alone(self, file, access):
        whole = bytearray(file.read_bytes())
        at = sum(len(framed(record)) for record in RECORDS[:7]) + 12
        whole[at] ^= 1
        file.write_bytes(whole)
        source = sources.TFRecordDataSource(file, access=access)
        text = f"{file}: record 7 at offset {at - 12}: the checksum of its data is 0x"
        with pytest.raises(errors.CorruptRecord, match=text):
            source[7]
        with pytest.raises(errors.CorruptRecord, match=text):
            source.__getitems__(range(20))
        assert source[6] == RECORDS[6]
        assert source.__getitems__([8, 9]) == RECORDS[8:10]
        trusting = sources.TFRecordDataSource(file, verify="headers")
        assert trusting[7] != RECORDS[7]

    def test_damaged_length_names_its_offset(self, file):
        whole = bytearray(file.read_bytes())
        at = sum(len(framed(record)) for record in RECORDS[:7])
        whole[at + 9] ^= 1
        file.write_bytes(whole)
        with pytest.raises(
            errors.CorruptRecord,
            match=f"{file}: record 7 at offset {at}: the checksum of its length 64 is"
            r" 0x\w+, expected 0x\w+: the file is damaged from here on",
        ):
            sources.TFRecordDataSource(file)

    def test_truncated_file_is_refused(self, file):
        at = sum(len(framed(record)) for record in RECORDS[:-1])
        os.truncate(file, at + 30)
        with pytest.raises(
            errors.CorruptRecord,
            match=f"{file}: record 499 at offset {at}: it has 40 bytes, but the file"
            " ends 18 bytes after its head: it is still being written",
        ):
            sources.TFRecordDataSource(file)

    def test_file_truncated_while_open_is_refused(self, file):
        source = sources.TFRecordDataSource(file)
        os.truncate(file, 1000)
        with pytest.raises(
            errors.CorruptRecord, match=r"record 499 .* changed while it"
        ):
            source[499]
        assert source[3] == RECORDS[3]

    def test_other_files_are_refused(self, tmp_path):
        path = tmp_path / "noise"
        path.write_bytes(np.random.default_rng(0).bytes(1000))
        with pytest.raises(errors.CorruptRecord, match=f"{path}: not a TFRecord file"):
            sources.TFRecordDataSource(path)
        with pytest.raises(FileNotFoundError, match="nothing"):
            sources.TFRecordDataSource(tmp_path / "nothing")
        with pytest.raises(IsADirectoryError, match="expected a file"):
            sources.TFRecordDataSource(tmp_path)

    @pytest.mark.claim(
        "Compressed TFRecord files can only be read in order, or converted."
    )
    @pytest.mark.parametrize(("suffix", "kind"), [("gz", "GZIP"), ("zlib", "ZLIB")])
    @pytest.mark.parametrize("name", NAMES)
    def test_compressed_files_are_refused(self, oracle, tmp_path, name, suffix, kind):
        path = shutil.copy(oracle.folder / f"{name}.{suffix}", tmp_path)
        with pytest.raises(
            errors.CorruptRecord,
            match=f"{path}: the file is compressed with {kind}, .*read_tf_records",
        ):
            sources.TFRecordDataSource(path)

    def test_growth_is_seen_by_the_next_source(self, file):
        source = sources.TFRecordDataSource(file)
        with open(file, "ab") as more:
            more.write(framed(b"more"))
        assert source[499] == RECORDS[499]
        assert len(source) == 500
        assert list(sources.TFRecordDataSource(file)) == [*RECORDS, b"more"]
