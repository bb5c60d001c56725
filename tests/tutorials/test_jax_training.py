"""The tutorial about feeding a training step in JAX."""

import itertools
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")


def preprocess(record):
    return {
        "image": record["image"].astype(np.float32) / 255.0,
        "label": record["label"],
    }


@pytest.fixture
def dataset(grain, digits):
    return (
        grain.MapDataset.source(digits)
        .seed(42)
        .shuffle()
        .map(preprocess)
        .batch(batch_size=128, drop_remainder=True)
        .to_iter_dataset()
    )


def test_minimal_pipeline_has_one_static_shape(dataset):
    batches = list(dataset)
    assert len(batches) == 14
    batch = jax.device_put(batches[0])
    assert batch["image"].shape == (128, 8, 8, 1)
    assert batch["image"].dtype == np.float32
    assert batch["label"].shape == (128,)
    assert {b["label"].shape for b in batches} == {(128,)}
    assert batches[0]["label"][:6].tolist() == [9, 3, 7, 1, 7, 5]


def test_repeated_pipeline_never_ends(grain, digits):
    endless = grain.MapDataset.source(digits).seed(42).shuffle().repeat()
    assert len(endless) == sys.maxsize
    batches = endless.map(preprocess).batch(128, drop_remainder=True)
    assert len(batches) == sys.maxsize // 128


def test_own_collation_pads_ragged_elements(grain):
    def pad_collate(items):
        longest = max(len(x["tokens"]) for x in items)
        rows = [np.pad(x["tokens"], (0, longest - len(x["tokens"]))) for x in items]
        return {"tokens": np.stack(rows)}

    ragged = [{"tokens": np.arange(2 + i % 4)} for i in range(16)]
    dataset = grain.MapDataset.source(ragged)
    dataset = dataset.batch(4, batch_fn=pad_collate, drop_remainder=True)
    assert [dataset[i]["tokens"].shape for i in range(3)] == [(4, 5)] * 3
    assert dataset[0]["tokens"][0].tolist() == [0, 1, 0, 0, 0]


def test_partial_batch_is_padded_to_the_full_shape(grain):
    import functools

    pad = functools.partial(
        grain.experimental.batch_and_pad, batch_size=4, pad_value=-1
    )
    dataset = grain.MapDataset.range(6).batch(4, batch_fn=pad)
    assert [b.tolist() for b in dataset] == [[0, 1, 2, 3], [4, 5, -1, -1]]


def test_thread_overlaps_host_work_with_the_step(grain, dataset):
    dataset = grain.experimental.ThreadPrefetchIterDataset(
        dataset, prefetch_buffer_size=4
    )
    batches = list(itertools.islice(dataset.map(jax.device_put), 3))
    assert [type(b["image"]).__name__ for b in batches] == ["ArrayImpl"] * 3


@pytest.mark.parametrize("target", ["device", "sharding"])
def test_batches_are_on_the_device_before_the_step(grain, digits, target):
    device = jax.devices()[0]
    if target == "sharding":
        mesh = jax.sharding.Mesh(np.array(jax.devices()), axis_names=("data",))
        spec = jax.sharding.PartitionSpec("data")
        device = jax.sharding.NamedSharding(mesh, spec)
    dataset = (
        grain.MapDataset.source(digits)
        .seed(42)
        .shuffle()
        .repeat()
        .map(preprocess)
        .batch(256, drop_remainder=True)
        .to_iter_dataset()
    )
    dataset = grain.experimental.device_put(
        ds=dataset, device=device, cpu_buffer_size=4, device_buffer_size=2
    )

    @jax.jit
    def train_step(parameters, batch):
        return parameters + batch["image"].mean()

    parameters = jax.numpy.zeros(())
    iterator = iter(dataset)
    for _ in range(3):
        batch = next(iterator)
        assert isinstance(batch["image"], jax.Array)
        parameters = train_step(parameters, batch)
    iterator.close()
    assert float(parameters) == pytest.approx(0.0572797, abs=1e-6)
