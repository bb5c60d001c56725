"""Iteration over a MapDataset."""

import collections
import threading

import pytest

import gristmill
from gristmill._dataset.nodes import to_iter
from gristmill._engine import reading


class Source:
    """Serves numbers, which must be read in blocks."""

    def __init__(self, length):
        self._length = length
        self.blocks = []

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        raise AssertionError("one was read by itself")

    def __getitems__(self, indices):
        self.blocks.append(len(indices))
        return list(indices)


@pytest.mark.claim("Elements are computed one by one, or by 16 threads from the start")
def test_fast_elements_stay_in_blocks_when_probed(
    monkeypatch,
):
    monkeypatch.setattr(to_iter, "BLOCK_NS", 10**15)
    monkeypatch.setattr(reading, "LONG_READ_S", 1e6)
    monkeypatch.setattr(reading, "SLOW_READ_S", 1e6)
    monkeypatch.setattr(reading, "BLOCKS_BETWEEN_PROBES", 2)
    source = Source(1 + 2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 20 * 512)
    dataset = gristmill.MapDataset.source(source).map(lambda x: x)
    elements = list(dataset.to_iter_dataset())
    assert elements == list(range(len(source)))
    assert source.blocks == [2**n for n in range(9)] + 20 * [512]


@pytest.mark.claim("Elements are computed one by one, or by 16 threads from the start")
@pytest.mark.parametrize("slow_s", [-1, 10**6], ids=["waits", "fast"])
def test_waiting_elements_are_computed_by_threads(monkeypatch, slow_s):
    monkeypatch.setattr(reading, "LONG_READ_S", 1e6)
    monkeypatch.setattr(reading, "SLOW_READ_S", slow_s)
    threads = set()

    def note(x):
        threads.add(threading.current_thread())
        return x

    iterator = iter(gristmill.MapDataset.range(4000).map(note).to_iter_dataset())
    assert next(iterator) == 0
    assert threading.main_thread() in threads
    assert list(iterator) == list(range(1, 4000))
    assert (len(threads) > 1) == (slow_s < 0)


class Failing:
    """Returns its argument, but fails on the first call for `bad`; counts its calls."""

    def __init__(self, bad):
        self._bad = bad
        self.calls = collections.Counter()

    def __call__(self, x):
        self.calls[x] += 1
        if x == self._bad and self.calls[x] == 1:
            raise ValueError(f"no {x} yet")
        return x


def test_element_failing_once_is_an_error():
    failing = Failing(0)
    iterator = iter(gristmill.MapDataset.range(3).map(failing).to_iter_dataset())
    with pytest.raises(ValueError, match="no 0 yet"):
        next(iterator)
    assert list(iterator) == [1, 2]
    assert failing.calls == {0: 1, 1: 1, 2: 1}


class Always(Failing):
    """Fails on every call for `bad`."""

    def __call__(self, x):
        self.calls[x] += 1
        if x == self._bad:
            raise ValueError(f"never {x}")
        return x


@pytest.mark.parametrize("threads", [0, 16])
def test_elements_before_a_failing_one_are_made_twice(monkeypatch, threads):
    monkeypatch.setattr(to_iter, "BLOCK_NS", 10**15)
    monkeypatch.setattr(reading, "LONG_READ_S", 1e6)
    monkeypatch.setattr(reading, "SLOW_READ_S", 1e6)
    always = Always(28)
    options = gristmill.ReadOptions(num_threads=threads)
    dataset = gristmill.MapDataset.range(64).map(always).to_iter_dataset(options)
    iterator = iter(dataset)
    assert [next(iterator) for _ in range(28)] == list(range(28))
    with pytest.raises(ValueError, match="never 28"):
        next(iterator)
    assert list(iterator) == list(range(29, 64))
    assert max(always.calls.values()) == 2
