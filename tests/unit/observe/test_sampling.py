"""Tests of measuring blocks while a dataset is read by index."""

import threading
from concurrent.futures import ThreadPoolExecutor

import gristmill
from gristmill import monitoring
from gristmill._dataset.nodes.to_iter import _Elements
from gristmill._observe import sampling

DEADLINE_S = 30.0


class InPairs:
    """Numbers that can only be read by two threads at the same time."""

    def __init__(self, length):
        self._length = length
        self._both = threading.Barrier(2, timeout=DEADLINE_S)

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        self._both.wait()
        return index


def test_threads_measure_blocks_at_the_same_time(monkeypatch):
    monkeypatch.setattr(sampling, "FIRST_SAMPLE_NS", 0)
    monkeypatch.setattr(sampling, "SAMPLE_INTERVAL_NS", 0)
    dataset = gristmill.MapDataset.source(InPairs(64)).map(lambda x: x)
    elements = _Elements(dataset)
    elements.meter = sampling.Sampling(dataset, lambda fails: None)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(elements.__getitem__, range(64))) == list(range(64))
    assert elements.meter.measured_elements == 64


def test_metrics_record_each_element_read_by_threads(monkeypatch):
    told = []
    monkeypatch.setattr(monitoring, "is_on", lambda: True)
    monkeypatch.setattr(monitoring, "record_read", lambda *args: told.append(args))
    elements = _Elements(gristmill.MapDataset.source(InPairs(64)).map(lambda x: x))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(elements.__getitem__, range(64))) == list(range(64))
    assert sorted(x for _, read, _ in told for x in read) == list(range(64))
    assert {source for source, *_ in told} == {"InPairs"}


def test_chain_of_very_many_nodes_is_not_measured():
    dataset = gristmill.MapDataset.range(3)
    for _ in range(200):
        dataset = dataset.map(float)
    assert iter(dataset.to_iter_dataset()).meter is None
