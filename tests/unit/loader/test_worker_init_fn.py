"""Tests of a loader's worker_init_fn, which works like that of mp_prefetch."""

import threading

import pytest

import gristmill as g


class Told(g.MapTransform):
    """Appends this process's list of worker_init_fn calls to each element."""

    def __init__(self, told):
        self.told = told

    def map(self, element):
        return element, *self.told


class Odd(g.FilterTransform):
    def filter(self, element):
        return element[0] % 2 == 1


def loaders(function, told, **options):
    """Yield a loader of each kind, including one whose streams belong to a worker."""
    yield g.load(
        range(8),
        num_epochs=1,
        transformations=[Told(told)],
        worker_init_fn=function,
        **options,
    )
    for operations in ([Told(told)], [Told(told), Odd()]):
        yield g.DataLoader(
            data_source=range(8),
            sampler=g.IndexSampler(8, num_epochs=1),
            operations=operations,
            worker_init_fn=function,
            **options,
        )


@pytest.mark.multiprocess
def test_worker_init_fn_is_called_first_in_each_worker():
    told = []

    def begin(worker, workers):
        told.append((worker, workers))

    for loader in loaders(begin, told, worker_count=2):
        numbers, calls = zip(*loader, strict=True)
        assert numbers in (tuple(range(8)), (1, 3, 5, 7))
        assert {*calls} <= {(0, 2), (1, 2)}
    assert told == []


@pytest.mark.multiprocess
def test_worker_init_fn_gets_current_worker_count():
    told = []
    loader = g.load(
        range(8),
        transformations=[Told(told)],
        worker_count=1,
        worker_init_fn=lambda worker, workers: told.append(workers),
    )
    iterator = iter(loader)
    assert next(iterator) == (0, 1)
    iterator.set_workers(2)
    # The first worker continues until the others have started.
    assert next(workers for _, workers in iterator if workers != 1) == 2


@pytest.mark.multiprocess
def test_error_of_worker_init_fn_is_raised():
    def begin(worker, workers):
        raise PermissionError(f"not {worker} of {workers}")

    for loader in loaders(begin, [], worker_count=1):
        with pytest.raises(PermissionError, match="not 0 of 1"):
            next(iter(loader))


@pytest.mark.multiprocess
def test_unpicklable_worker_init_fn_is_named():
    lock = threading.Lock()

    def begin(worker, workers):
        lock.acquire()

    for loader in loaders(begin, [], worker_count=1):
        with pytest.raises(TypeError) as caught:
            next(iter(loader))
        assert "worker_init_fn cannot be pickled" in "".join(caught.value.__notes__)


def test_worker_init_fn_is_not_called_without_workers():
    told = []
    for loader in loaders(lambda *arguments: told.append(arguments), told):
        assert {*loader} <= {(i,) for i in range(8)}
    assert told == []


def test_worker_init_fn_must_be_a_function():
    with pytest.raises(TypeError, match="worker_init_fn must be a function, got"):
        g.load(range(2), worker_init_fn=3)
    with pytest.raises(TypeError, match="worker_init_fn must be a function, got"):
        next(loaders("begin", []))
