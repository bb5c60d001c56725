"""device_put moves elements to a device ahead of next()."""

import sys
import threading

import pytest

import gristmill
from gristmill.experimental import device_put

jax = pytest.importorskip("jax")


def batches(n):
    return gristmill.MapDataset.range(n).batch(2).to_iter_dataset()


def test_elements_arrive_on_device_in_order():
    device = jax.devices()[0]
    found = list(device_put(batches(6), device))
    assert [x.tolist() for x in found] == [[0, 1], [2, 3], [4, 5]]
    assert all(isinstance(x, jax.Array) and x.devices() == {device} for x in found)


def test_fast_transfers_begin_ahead():
    seen = []
    enough = threading.Event()

    def note(x):
        seen.append(x)
        if len(seen) == 102:
            enough.set()
        return x

    ds = gristmill.MapDataset.range(1000).to_iter_dataset().map(note)
    iterator = iter(device_put(ds, jax.devices()[0], cpu_buffer_size=1))
    for i in range(100):
        assert next(iterator) == i
    assert enough.wait(10)
    iterator.close()


def test_state_counts_returned_elements():
    ds = device_put(batches(20), jax.devices()[0])
    iterator = iter(ds)
    next(iterator)
    assert iterator.get_state() == {"next_index": 1}
    resumed = iter(ds)
    resumed.set_state({"next_index": 8})
    assert [x.tolist() for x in resumed] == [[16, 17], [18, 19]]


def test_missing_jax_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match="needs the jax package"):
        device_put(batches(2), None)
