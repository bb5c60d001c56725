"""Tests of batches on JAX devices: values, shared memory, lifetime and state."""

import gc
import socket
import subprocess

import numpy as np
import pytest

import gristmill as g
from faults.scripts import command, environment
from support.remembered import Remembered

jax = pytest.importorskip("jax")
adapter = pytest.importorskip("gristmill.jax")

WIDTH = 256


class FailsAt(g.MapTransform):
    def __init__(self, record):
        self.record = record

    def map(self, element):
        if element[0] == self.record:
            raise KeyError("no such file")
        return element


def loader(operations=(), *, records=40, batch=4, **options):
    """Return a loader of batches of rows; row i is float32 filled with i."""
    rows = np.repeat(np.arange(records, dtype=np.float32)[:, None], WIDTH, axis=1)
    return g.DataLoader(
        data_source=rows,
        sampler=g.SequentialSampler(records),
        operations=[*operations, g.Batch(batch)],
        **options,
    )


def first_column(batch):
    return np.asarray(batch)[:, 0].tolist()


@pytest.mark.parametrize("depth", [1, 2, 7, 100])
def test_values_and_order_for_any_depth(depth):
    batches = list(adapter.prefetch_to_device(loader(), depth=depth))
    assert all(isinstance(batch, jax.Array) for batch in batches)
    assert [first_column(batch) for batch in batches] == [
        [i, i + 1, i + 2, i + 3] for i in range(0, 40, 4)
    ]


def test_depth_must_be_positive():
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        adapter.prefetch_to_device(loader(), depth=0)


def test_trees_keep_their_structure():
    element = {"a": (np.ones(3, np.int32), None), "b": [np.zeros((), np.float16)]}
    [placed] = adapter.prefetch_to_device([element])
    assert jax.tree_util.tree_structure(placed) == jax.tree_util.tree_structure(element)
    assert placed["a"][0].dtype == np.int32


def test_wide_types_become_types_of_jax():
    [placed] = adapter.prefetch_to_device([np.array([1, 2**31 - 1], np.int64)])
    assert placed.dtype == jax.dtypes.canonicalize_dtype(np.int64)
    assert placed.tolist() == [1, 2**31 - 1]


def pointers(batches):
    return [batch.unsafe_buffer_pointer() for batch in batches]


@pytest.mark.multiprocess
def test_batches_from_workers_are_not_copied():
    # 64 KiB each: smaller batches are copied out of their slot by the loader.
    remembered = Remembered(loader(records=640, batch=64, worker_count=2))
    batches = list(adapter.prefetch_to_device(remembered))
    assert len(batches) == 10
    assert pointers(batches) == remembered.addresses


def aligned(batches):
    """Copy batches to addresses that JAX can view."""
    for batch in batches:
        memory = np.empty(batch.nbytes + 64, np.uint8)
        begin = -memory.ctypes.data % 64
        view = memory[begin : begin + batch.nbytes].view(batch.dtype)
        view = view.reshape(batch.shape)
        view[...] = batch
        yield view


def test_aligned_arrays_are_not_copied():
    remembered = Remembered(aligned(loader()))
    batches = list(adapter.prefetch_to_device(remembered))
    assert pointers(batches) == remembered.addresses


def test_odd_addresses_and_read_only_arrays_are_copied():
    odd = np.arange(9, dtype=np.uint8)[1:]
    fixed = np.arange(4, dtype=np.float32)
    fixed.flags.writeable = False
    placed = list(adapter.prefetch_to_device([odd, fixed]))
    assert [leaf.tolist() for leaf in placed] == [list(range(1, 9)), [0, 1, 2, 3]]


@pytest.mark.multiprocess
@pytest.mark.parametrize("every", [1, 3])
def test_kept_arrays_stay_valid_while_slots_are_reused(every):
    batches = adapter.prefetch_to_device(
        loader(records=6400, batch=64, worker_count=2, streams=1)
    )
    kept = []
    for number, batch in enumerate(batches):
        if number % every == 0:
            kept.append((number, batch))
    del batches, batch
    gc.collect()
    assert len(kept) == len(range(0, 100, every))
    for number, batch in kept:
        expected = np.arange(64 * number, 64 * number + 64, dtype=np.float32)
        assert (np.asarray(batch) == expected[:, None]).all()


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_state_is_after_last_delivered_batch(workers):
    made = loader(worker_count=workers, streams=1)
    plain = iter(made)
    batches = adapter.prefetch_to_device(made, depth=3)
    assert batches.get_state() == plain.get_state()
    for _ in range(4):
        assert first_column(next(batches)) == first_column(next(plain))
        assert batches.get_state() == plain.get_state()
    state = batches.get_state()
    rest = [first_column(batch) for batch in batches]
    batches.set_state(state)
    assert batches.get_state() == state
    assert [first_column(batch) for batch in batches] == rest
    again = adapter.prefetch_to_device(made)
    again.set_state(state)
    assert [first_column(batch) for batch in again] == rest


def test_close_drops_undelivered_batches():
    batches = adapter.prefetch_to_device(loader(), depth=3)
    assert first_column(next(batches)) == [0, 1, 2, 3]
    batches.close()
    assert first_column(next(batches)) == [4, 5, 6, 7]


@pytest.mark.multiprocess
def test_arrays_outlive_the_loader_and_donation():
    """XLA may reuse the memory of a donated array, which is one of our slots."""
    add = jax.jit(lambda batch: batch + 1, donate_argnums=0)
    batches = adapter.prefetch_to_device(
        loader(records=3200, batch=64, worker_count=2, streams=1)
    )
    kept = [add(batch) for batch in batches]
    batches.close()
    del batches
    gc.collect()
    for number, batch in enumerate(kept):
        expected = np.arange(64 * number + 1, 64 * number + 65, dtype=np.float32)
        assert (np.asarray(batch) == expected[:, None]).all()


def test_get_state_of_iterator_without_state_raises():
    with pytest.raises(TypeError, match=r"list_iterator has no get_state\(\)"):
        adapter.prefetch_to_device([np.zeros(1)]).get_state()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_exception_keeps_its_position(depth):
    batches = adapter.prefetch_to_device(loader([FailsAt(9)]), depth=depth)
    plain = iter(loader([FailsAt(9)]))
    for _ in range(2):
        assert first_column(next(batches)) == first_column(next(plain))
        assert batches.get_state() == plain.get_state()
    for iterator in (batches, plain):
        with pytest.raises(KeyError, match="no such file"):
            next(iterator)
    assert batches.get_state() == plain.get_state()
    assert first_column(next(batches)) == first_column(next(plain))


def test_error_of_unsupported_leaf_keeps_its_position():
    batches = adapter.prefetch_to_device([np.zeros(1), "text", np.ones(1)], depth=3)
    assert next(batches).tolist() == [0]
    with pytest.raises(TypeError):
        next(batches)
    assert next(batches).tolist() == [1]


@pytest.mark.multiprocess
def test_sharding_over_four_devices():
    done = subprocess.run(
        command("jax/sharded"),
        env={
            **environment(),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.multiprocess
def test_two_hosts_read_and_save_their_own_parts(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = "--xla_force_host_platform_device_count=2"
    env = {**environment(), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    hosts = [
        subprocess.Popen(
            command("jax/two_hosts", address, process, tmp_path),
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    try:
        errors = [host.communicate(timeout=120)[1] for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    assert [host.returncode for host in hosts] == [0, 0], errors
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["process_0-of-2.json", "process_1-of-2.json"]
