"""Tests of the index of rows: its order, its file, and changed data."""

import logging
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import _core, errors, sources
from gristmill.sources._gpt_order import count_rows
from support import extras
from support.token_files import write_megatron_index

gpt = extras.megatron("datasets.gpt_dataset")
helpers = extras.megatron("datasets.helpers_cpp")

DOCUMENTS = 100_000


def build(lengths, counts, *, seed=1, length=3, extra=True):
    rule = _core.ShuffleRule(
        seed=seed,
        row_tokens=length,
        has_extra_token=extra,
        epochs=counts.epochs,
        first_epochs=counts.first_epochs,
        rows=counts.rows,
        first_rows=counts.first_rows,
        tokens=int(lengths.sum()),
    )
    place = _core.ArrayPlace(0, [], "")
    return _core.TokenRows.shuffled(lengths, int(lengths.max()), rule, place)


@given(
    st.integers(1, 6000),
    st.sampled_from([2, 10, 60]),
    st.sampled_from([np.int32, np.int64]),
    st.integers(1, 40),
    st.floats(0, 4) | st.none(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_index_equals_the_arrays_of_megatron(
    documents, longest, dtype, length, share, extra, drop_last, seed
):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, longest, documents).astype(dtype)
    lengths[random.integers(documents)] += 1
    tokens = int(lengths.sum())
    num_samples = None if share is None else int(share * tokens / length)
    counts = count_rows(tokens, length, num_samples, extra, drop_last)
    rows = build(lengths, counts, seed=seed, length=length, extra=extra)
    state = np.random.RandomState(seed)
    order = gpt._build_document_index(
        np.arange(documents, dtype=np.int32),
        counts.epochs,
        state,
        counts.first_epochs < counts.epochs,
    )
    starts = helpers.build_sample_idx_int32(
        lengths.astype(np.int32),
        order,
        length,
        counts.epochs,
        tokens,
        drop_last,
        int(extra),
    )
    assert rows.num_rows == len(starts) - 1
    shuffled = gpt._build_shuffle_index(counts.first_rows, rows.num_rows, state)
    found = [np.frombuffer(rows.array(i), np.uint32) for i in range(3)]
    np.testing.assert_array_equal(found[0], order)
    np.testing.assert_array_equal(found[1].reshape(-1, 2), starts[:-1])
    np.testing.assert_array_equal(found[2], shuffled)


@pytest.mark.parametrize("tokens", [2**24 + 3, 2**26 + 65])
def test_incomplete_last_row_is_counted_as_megatron_does(tokens):
    # In 32-bit floating point: there is one row too many, or one is missing.
    lengths = np.array([tokens - 1, 1], np.int32)
    counts = count_rows(tokens, 1000, None, True, drop_last=False)
    order = np.arange(2, dtype=np.int32)
    starts = helpers.build_sample_idx_int32(lengths, order, 1000, 1, tokens, False, 1)
    assert counts.rows == len(starts) - 1
    rows = build(lengths, counts, length=1000)
    assert rows.rows(np.arange(counts.rows))[0][-1] > 0


def test_long_documents_and_positions_need_64_bits():
    lengths = np.array([2**33, 5], np.int64)
    rows = build(lengths, count_rows(2**33 + 5, 2**31, None, True, True), length=2**31)
    offsets, documents, begins, ends = rows.rows(np.arange(4))
    counts = np.add.reduceat(ends - begins, offsets[:-1])
    assert counts.tolist() == [2**31 + 1] * 4
    # Only one row has tokens of both documents.
    assert sorted(np.diff(offsets).tolist()) == [1, 1, 1, 2]
    assert sorted(begins[documents == 0].tolist())[-1] > 2**32


@pytest.fixture
def prefix(tmp_path):
    """A data set whose index is large enough to be saved; its tokens are 0."""
    prefix = str(tmp_path / "train")
    lengths = np.random.default_rng(0).integers(1, 5, DOCUMENTS)
    write_megatron_index(prefix, lengths, np.uint16)
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(2 * int(lengths.sum()))
    return prefix


def open_samples(prefix, **options):
    source = sources.MegatronDataSource(prefix)
    samples = sources.GPTDataSource(source, 4, **{"seed": 1} | options)
    assert samples.rows.index_path is not None  # Waits until the file is complete.
    return samples


def saved_indices(folder):
    return sorted(pathlib.Path(folder).glob(".train.*.gristmill-index"))


def spans(samples):
    keys = np.arange(0, len(samples), 997)
    return [array.tolist() for array in samples.rows.rows(keys)]


def test_index_is_saved_once_and_mapped(prefix, tmp_path):
    samples = open_samples(prefix)
    (path,) = saved_indices(tmp_path)
    assert samples.rows.index_path == str(path)
    written = os.stat(path)
    again = open_samples(prefix)
    assert spans(again) == spans(samples)
    assert os.stat(path).st_ino == written.st_ino
    assert spans(pickle.loads(pickle.dumps(samples))) == spans(samples)
    assert os.stat(path).st_mtime_ns == written.st_mtime_ns


SAVE_AND_END = """
import os, sys
from gristmill import sources
samples = sources.GPTDataSource(sources.MegatronDataSource(sys.argv[1]), 4, seed=1)
print(samples.rows.has_index_file)
sys.stdout.flush()
{end}
"""


@pytest.mark.parametrize(("end", "is_saved"), [("", True), ("os._exit(0)", False)])
def test_exit_waits_until_the_index_is_complete(prefix, tmp_path, end, is_saved):
    program = SAVE_AND_END.format(end=end)
    ended = subprocess.run(
        [sys.executable, "-c", program, prefix], capture_output=True, text=True
    )
    assert ended.stdout == "True\n"
    # A process that ends without an exit may have saved it in time.
    assert len(saved_indices(tmp_path)) == 1 or not is_saved
    samples = open_samples(prefix)
    assert [str(path) for path in saved_indices(tmp_path)] == [samples.rows.index_path]


def test_other_arguments_have_other_indices(prefix, tmp_path):
    kept = spans(open_samples(prefix))
    assert spans(open_samples(prefix, seed=2)) != kept
    assert len(saved_indices(tmp_path)) == 2
    open_samples(prefix, pad_id=0)  # Has no effect on the order.
    assert len(saved_indices(tmp_path)) == 2
    assert spans(open_samples(prefix)) == kept


@pytest.mark.parametrize("offset", [0, 8, 12, 24, 64, 500_000, -1])
def test_damaged_index_is_built_again(prefix, tmp_path, offset):
    kept = spans(open_samples(prefix))
    (path,) = saved_indices(tmp_path)
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[offset] ^= 1
    path.write_bytes(damaged)
    assert spans(open_samples(prefix)) == kept
    assert path.read_bytes() == good


@pytest.mark.parametrize("size", [0, 63, 64, 100_000])
def test_truncated_index_is_built_again(prefix, tmp_path, size):
    kept = spans(open_samples(prefix))
    (path,) = saved_indices(tmp_path)
    good = path.read_bytes()
    path.write_bytes(good[:size])
    assert spans(open_samples(prefix)) == kept
    assert path.read_bytes() == good


def test_changed_data_have_another_index(prefix, tmp_path):
    samples = open_samples(prefix)
    lengths = np.random.default_rng(0).integers(1, 5, DOCUMENTS)
    lengths[[5, 6]] = lengths[[6, 5]] + [0, 1]
    write_megatron_index(prefix, lengths, np.uint16)
    changed = open_samples(prefix)
    assert len(saved_indices(tmp_path)) == 2
    assert spans(changed) != spans(samples)
    with pytest.raises(errors.CorruptRecord, match="changed after the sending process"):
        pickle.loads(pickle.dumps(samples))[0]


def test_index_dir_has_the_index(prefix, tmp_path):
    samples = open_samples(prefix, index_dir=tmp_path / "kept")
    assert pathlib.Path(samples.rows.index_path).parent == tmp_path / "kept"
    assert saved_indices(tmp_path) == []


def test_unsaved_index_is_logged_and_used(prefix, tmp_path, caplog):
    kept = spans(open_samples(prefix))
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        samples = open_samples(prefix, index_dir=tmp_path / "file")
    assert "index_dir=" in caplog.text
    assert samples.rows.index_path == ""
    assert spans(samples) == kept


def test_small_index_is_not_saved(tmp_path):
    prefix = str(tmp_path / "train")
    write_megatron_index(prefix, np.full(100, 3), np.uint16)
    pathlib.Path(f"{prefix}.bin").write_bytes(bytes(600))
    assert open_samples(prefix).rows.index_path == ""
    assert saved_indices(tmp_path) == []


def _open_and_send(prefix, start, results):
    start.wait()
    samples = open_samples(prefix)
    results.put((samples.rows.index_path, spans(samples)))


def test_processes_that_start_together_agree(prefix, tmp_path):
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(4), context.Queue()
    processes = [
        context.Process(target=_open_and_send, args=(prefix, start, results))
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    (path,) = saved_indices(tmp_path)
    assert found == [(str(path), spans(open_samples(prefix)))] * 4
    assert list(tmp_path.glob(".*.tmp")) == []


def _open_many(prefix):
    for seed in range(1000):
        open_samples(prefix, seed=seed)


def test_killed_builder_leaves_nothing_broken(prefix, tmp_path):
    process = multiprocessing.get_context("fork").Process(
        target=_open_many, args=(prefix,)
    )
    process.start()
    while len(saved_indices(tmp_path)) < 3:
        assert process.is_alive()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    for seed in range(8):
        found = open_samples(prefix, seed=seed, index_dir=tmp_path / "other")
        assert spans(open_samples(prefix, seed=seed)) == spans(found)


def test_negative_length_is_an_error(tmp_path):
    prefix = str(tmp_path / "train")
    write_megatron_index(prefix, np.array([3, -1, 5]), np.uint16)
    pathlib.Path(f"{prefix}.bin").write_bytes(bytes(600))
    with pytest.raises(errors.CorruptRecord, match=r"train.*document 1"):
        open_samples(prefix)
