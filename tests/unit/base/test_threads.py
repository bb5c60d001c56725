"""Number of compute threads in a process; detection of code that reads its thread."""

import functools
import os
import threading
from threading import current_thread

import numpy as np
import pytest

import gristmill
from gristmill._base.threads import reads_thread_name, threads_to_compute


def test_thread_count_is_limited_by_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 5})
    assert [threads_to_compute(wanted) for wanted in (0, 1, 2, 16)] == [1, 1, 2, 3]
    assert threads_to_compute() == 3


def test_worker_computes_in_one_thread():
    dataset = gristmill.MapDataset.range(3).map(lambda _: threads_to_compute(16))
    options = gristmill.MultiprocessingOptions(num_workers=2)
    assert list(dataset.to_iter_dataset().mp_prefetch(options)) == [1, 1, 1]


def name():
    return current_thread().name


class ByName:
    def __getitem__(self, index):
        return self.number

    @property
    def number(self):
        return name()


class Inherits(ByName):
    pass


class MapsByName(gristmill.transforms.Map):
    def map(self, element):
        return [threading.current_thread().getName() for _ in range(element)]


class ByNameElsewhere:
    def __getitem__(self, index):
        return threading.current_thread().ident

    def unrelated(self):
        return name()


@pytest.mark.parametrize(
    "user_code",
    [
        *(ByName(), Inherits(), MapsByName(), MapsByName().map),
        *(name, functools.partial(name), lambda x: name()),
    ],
)
def test_code_reading_thread_name_is_detected(user_code):
    assert reads_thread_name(user_code)


@pytest.mark.parametrize(
    "user_code", [ByNameElsewhere(), np.arange(3), [1], None, len, str.upper]
)
def test_code_not_reading_thread_name_is_not_detected(user_code):
    assert not reads_thread_name(user_code)
