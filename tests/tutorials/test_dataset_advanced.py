"""The tutorial about advanced use of datasets: checkpoints, mixing, shuffling."""

import itertools
import json
import sys

import numpy as np
import pytest


def test_orbax_saves_and_restores_the_iterator(grain, digits, tmp_path):
    import orbax.checkpoint as ocp

    dataset = grain.MapDataset.source(digits).seed(seed=45).shuffle().to_iter_dataset()
    iterator = iter(dataset)
    assert [next(iterator)["label"] for _ in range(4)] == [0, 3, 3, 7]

    manager = ocp.CheckpointManager(tmp_path / "orbax")
    saved = grain.checkpoint.CheckpointSave(iterator)
    assert manager.save(step=4, args=saved, force=True)
    manager.wait_until_finished()
    (path,) = (tmp_path / "orbax").glob("*/*/*.json")
    assert path.relative_to(tmp_path / "orbax").as_posix() == (
        "4/default/process_0-of-1.json"
    )
    assert json.loads(path.read_text()) == {"next_index": 4}

    assert [next(iterator)["label"] for _ in range(4)] == [3, 5, 0, 7]
    manager.restore(4, args=grain.checkpoint.CheckpointRestore(iterator))
    assert [next(iterator)["label"] for _ in range(4)] == [3, 5, 0, 7]
    manager.close()


def of(name):
    return lambda x: (name, x)


def test_mix_length_follows_weights_and_the_shortest_part(grain):
    first = grain.MapDataset.range(4708).map(of("a"))
    second = grain.MapDataset.range(60_000).map(of("b"))
    mixed = grain.MapDataset.mix([first, second], weights=[0.7, 0.3])
    assert len(mixed) == 6728
    assert [mixed[i] for i in range(10)] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
        ("a", 3),
        ("a", 4),
        ("b", 1),
        ("a", 5),
        ("a", 6),
        ("b", 2),
    ]


def test_mix_of_filtered_parts_is_iterated(grain, digits):
    ones = (
        grain.MapDataset.source(digits)
        .filter(lambda features: features["label"] == 1)
        .to_iter_dataset()
    )
    large = (
        grain.MapDataset.source(digits)
        .filter(lambda features: features["label"] > 4)
        .to_iter_dataset()
    )
    mixed = grain.IterDataset.mix([ones, large], weights=[0.7, 0.3])
    assert next(iter(mixed.map(lambda features: features["image"]))).shape == (8, 8, 1)
    labels = [x["label"] for x in itertools.islice(mixed, 10)]
    assert labels == [1, 1, 1, 5, 1, 1, 6, 1, 1, 7]


def test_repeated_parts_make_an_endless_mix(grain):
    first = grain.MapDataset.range(4708).repeat()
    second = grain.MapDataset.range(60_000).repeat()
    mixed = grain.MapDataset.mix([first, second], weights=[1, 2])
    assert len(first) == len(second) == len(mixed) == sys.maxsize


def test_parts_are_shuffled_with_own_seeds_before_the_mix(grain):
    first = grain.MapDataset.range(4708).map(of("a")).seed(42).shuffle().repeat()
    second = grain.MapDataset.range(60_000).map(of("b")).seed(43).shuffle().repeat()
    mixed = grain.MapDataset.mix([first, second], weights=[1, 2])
    assert len(mixed) == sys.maxsize
    assert [mixed[i] for i in range(9)] == [
        ("a", 275),
        ("b", 20688),
        ("b", 8712),
        ("a", 1881),
        ("b", 55374),
        ("b", 48224),
        ("a", 4250),
        ("b", 56603),
        ("b", 36821),
    ]


def test_hierarchical_shuffle_of_windows_and_files(grain):
    def window_shuffled(dataset):
        return grain.experimental.WindowShuffleIterDataset(
            dataset, window_size=10, seed=42
        )

    low = window_shuffled(grain.MapDataset.range(100).to_iter_dataset())
    high = window_shuffled(grain.MapDataset.range(300, 400).to_iter_dataset())
    both = grain.experimental.InterleaveIterDataset([low, high], cycle_length=2)
    iterator = iter(window_shuffled(both))
    assert [next(iterator) for _ in range(5)] == [304, 2, 4, 303, 302]
    iterator.close()


def test_hierarchical_shuffle_of_parquet_files(grain, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [str(tmp_path / f"{shard}.parquet") for shard in "abc"]
    for shard, name in enumerate(names):
        rows = range(10 * shard, 10 * shard + 8)
        pq.write_table(pa.table({"row": list(rows)}), name)

    dataset = grain.MapDataset.source(names).shuffle(seed=1)
    dataset = dataset.map(grain.experimental.ParquetIterDataset)
    dataset = grain.experimental.InterleaveIterDataset(dataset, cycle_length=len(names))
    dataset = grain.experimental.WindowShuffleIterDataset(
        dataset, window_size=10, seed=42
    )
    rows = [int(element["row"]) for element in dataset]
    assert rows[:5] == [11, 21, 0, 20, 1]
    assert sorted(rows) == [10 * shard + i for shard in range(3) for i in range(8)]


def test_thread_prefetch_runs_ahead_of_the_consumer(grain, digits):
    jax = pytest.importorskip("jax")
    dataset = grain.MapDataset.source(digits).to_iter_dataset()
    dataset = grain.experimental.ThreadPrefetchIterDataset(
        dataset, prefetch_buffer_size=3
    )
    iterator = iter(dataset.map(jax.device_put))
    elements = [next(iterator) for _ in range(4)]
    assert [int(e["label"]) for e in elements] == [0, 1, 2, 3]
    assert {type(e["image"]).__name__ for e in elements} == {"ArrayImpl"}
    assert iterator.get_state() == {"next_index": 4}
    iterator.close()


def test_device_put_buffers_on_the_processor_and_on_the_device(grain, digits):
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), axis_names=("data",))
    spec = jax.sharding.PartitionSpec("data")
    sharding = jax.sharding.NamedSharding(mesh, spec)
    dataset = grain.experimental.device_put(
        ds=grain.MapDataset.source(digits).batch(4).to_iter_dataset(),
        device=sharding,
        cpu_buffer_size=3,
        device_buffer_size=2,
    )
    iterator = iter(dataset)
    batch = next(iterator)
    assert batch["image"].sharding == sharding
    assert batch["label"].tolist() == [0, 1, 2, 3]
    iterator.close()


def test_reading_threads_keep_the_order(grain, digits):
    options = grain.ReadOptions(num_threads=32, prefetch_buffer_size=400)
    dataset = grain.MapDataset.source(digits).to_iter_dataset(read_options=options)
    labels = [element["label"] for element in dataset]
    assert labels == [digits[i]["label"] for i in range(len(digits))]


def test_autotuned_read_options_fit_the_memory(grain):
    rows = np.zeros((100, 64, 1024))  # Half a mebibyte each.
    dataset = grain.MapDataset.source(rows)
    config = grain.experimental.pick_performance_config(
        ds=dataset, ram_budget_mb=16, max_workers=None, max_buffer_size=None
    )
    # A MapDataset has no reading threads to tune, so the largest buffer is used.
    assert config.read_options.prefetch_buffer_size == 1000
    config = grain.experimental.pick_performance_config(
        ds=dataset.to_iter_dataset(),
        ram_budget_mb=16,
        max_workers=None,
        max_buffer_size=None,
    )
    assert config.read_options.prefetch_buffer_size == 32
    assert len(list(dataset.to_iter_dataset(config.read_options))) == 100


def test_autotuned_workers_fit_the_memory(grain):
    rows = np.zeros((100, 64, 1024))
    config = grain.experimental.pick_performance_config(
        ds=grain.MapDataset.source(rows).to_iter_dataset(),
        ram_budget_mb=16,
        max_workers=3,
        max_buffer_size=None,
    )
    assert config.multiprocessing_options == grain.MultiprocessingOptions(num_workers=3)


@pytest.mark.multiprocess
def test_worker_processes_keep_the_order(grain, digits, workers):
    options = grain.MultiprocessingOptions(
        num_workers=workers(3), per_worker_buffer_size=10
    )
    dataset = grain.MapDataset.source(digits)[:50].to_iter_dataset()
    iterator = iter(dataset.mp_prefetch(options))
    assert [int(e["label"]) for e in iterator] == [
        digits[i]["label"] for i in range(50)
    ]
    iterator.close()
