"""The notebook about performance: packed text, and hiding the latency of input."""

import itertools
import json
import threading

import numpy as np
import pytest

LENGTH = 16


@pytest.fixture
def articles(tmp_path):
    """Return an ArrayRecord file of 60 articles as JSON."""
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(tmp_path / "train.array-record")
    writer = ArrayRecordWriter(path, "group_size:1")
    for i in range(60):
        words = " ".join(f"word{j}" for j in range(2 + i * 7 % 11))
        article = {"description": words, "label": i % 4, "title": f"Article {i}"}
        writer.write(json.dumps(article).encode())
    writer.close()
    return path


def tokenize(element):
    """Map each word to an id, and add a first and a last token."""
    words = element["description"].split()
    ids = [1000 + int(word.removeprefix("word")) for word in words]
    return {"description": np.asarray([101, *ids, 102])}


def trim(element):
    return {"description": element["description"][:LENGTH]}


def packed(grain, path, read_options):
    source = grain.sources.ArrayRecordDataSource(path)
    dataset = grain.MapDataset.source(source).map(json.loads).map(tokenize)
    dataset = dataset.shuffle(seed=42).repeat(num_epochs=100)[1::16]
    return grain.experimental.FirstFitPackIterDataset(
        dataset.map(trim).to_iter_dataset(read_options),
        length_struct={"description": LENGTH},
        num_packing_bins=30,
    )


def batched(grain, path, read_options):
    return packed(grain, path, read_options).batch(8, drop_remainder=True)


def test_records_are_parsed_tokenized_and_sharded(grain, articles):
    source = grain.sources.ArrayRecordDataSource(articles)
    assert len(source) == 60
    parsed = grain.MapDataset.source(source).map(json.loads)
    assert parsed[1] == {
        "description": " ".join(f"word{j}" for j in range(9)),
        "label": 1,
        "title": "Article 1",
    }
    tokenized = parsed.map(tokenize)
    assert tokenized[0]["description"].tolist() == [101, 1000, 1001, 102]
    repeated = tokenized.shuffle(seed=42).repeat(num_epochs=100)
    sharded = repeated[1::16]
    assert (len(repeated), len(sharded)) == (6000, 375)
    assert sharded[0]["description"].tolist() == repeated[1]["description"].tolist()


def test_sequences_are_packed_with_their_places(grain, articles):
    dataset = packed(grain, articles, grain.ReadOptions(num_threads=0))
    row = next(iter(dataset))
    assert sorted(row) == [
        "description",
        "description_positions",
        "description_segment_ids",
    ]
    assert {key: (v.shape, v.dtype) for key, v in row.items()} == {
        "description": ((16,), np.dtype(np.int64)),
        "description_positions": ((16,), np.dtype(np.int32)),
        "description_segment_ids": ((16,), np.dtype(np.int32)),
    }
    first, second = [101, *range(1000, 1009), 102], [101, 1000, 1001, 102]
    assert row["description"].tolist() == [*first, *second, 0]
    assert row["description_positions"].tolist() == [*range(11), *range(4), 0]
    assert row["description_segment_ids"].tolist() == [1] * 11 + [2] * 4 + [0]


@pytest.mark.parametrize("threads", [0, 24])
def test_threads_do_not_change_the_batches(grain, articles, threads):
    dataset = batched(grain, articles, grain.ReadOptions(num_threads=threads))
    batches = list(itertools.islice(dataset, 3))
    assert {b["description"].shape for b in batches} == {(8, 16)}
    assert [int(b["description"].sum()) for b in batches] == [89603, 86765, 92315]


@pytest.mark.multiprocess
def test_worker_processes_pack_their_own_shares(grain, articles):
    dataset = batched(grain, articles, grain.ReadOptions(num_threads=2))
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    iterator = iter(dataset.mp_prefetch(options))
    sums = [int(next(iterator)["description"].sum()) for _ in range(3)]
    iterator.close()
    assert sums == [93187, 85755, 88149]


def test_prefetch_thread_works_while_the_consumer_is_busy(grain):
    made = threading.Semaphore(0)

    def step(x):
        made.release()
        return x

    dataset = grain.MapDataset.range(20).to_iter_dataset().map(step)
    dataset = grain.experimental.ThreadPrefetchIterDataset(
        dataset, prefetch_buffer_size=3
    )
    iterator = iter(dataset)
    assert next(iterator) == 0
    # The first element, and three in the buffer, without another call of next().
    assert all(made.acquire(timeout=30) for _ in range(4))
    assert list(iterator) == list(range(1, 20))


def test_start_prefetch_overlaps_the_first_batch_with_a_restore(grain):
    made = threading.Semaphore(0)

    def step(x):
        made.release()
        return x

    dataset = grain.MapDataset.range(20).to_iter_dataset().map(step)
    dataset = grain.experimental.ThreadPrefetchIterDataset(
        dataset, prefetch_buffer_size=3
    )
    iterator = iter(dataset)
    iterator.start_prefetch()
    assert all(made.acquire(timeout=30) for _ in range(3))
    assert list(iterator) == list(range(20))
