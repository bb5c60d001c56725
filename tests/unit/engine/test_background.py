"""Background threads, whose running calls close() does not wait for."""

import gc
import os
import threading
import weakref

import pytest

from gristmill._engine.background import Background
from gristmill._engine.local import LocalRun
from gristmill._engine.record_errors import RecordErrors
from gristmill._engine.state import RunPosition
from gristmill._hot import cancellation, iterators

# A failing test must report, not wait forever.
GIVE_UP_S = 30


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def background():
    background = Background(2, "test")
    yield background
    background.close()


def ended(background):
    background.join(GIVE_UP_S)
    return not any(thread.is_alive() for thread in background._threads)


def test_futures_return_results_and_exceptions(background):
    assert background.submit(max, 3, 5).result(GIVE_UP_S) == 5
    with pytest.raises(ValueError, match="invalid literal"):
        background.submit(int, "x").result(GIVE_UP_S)


def test_threads_start_on_demand(background):
    for _ in range(20):
        background.submit(len, "").result(GIVE_UP_S)
        gc.collect()
    both = threading.Barrier(2, timeout=GIVE_UP_S)
    futures = [background.submit(both.wait) for _ in range(2)]
    assert {future.result(GIVE_UP_S) for future in futures} == {0, 1}
    names = [thread.name for thread in background._threads]
    assert names == ["test_0", "test_1"]


def test_close_cancels_waiting_calls_without_blocking(background, gate):
    begun = threading.Barrier(3, timeout=GIVE_UP_S)

    def call():
        begun.wait()
        gate.wait()

    running = [background.submit(call) for _ in range(2)]
    waiting = [background.submit(len, "") for _ in range(3)]
    begun.wait()
    background.close()
    assert all(future.cancelled() for future in waiting)
    assert not any(future.done() for future in running)
    assert background.submit(len, "").cancelled()
    gate.set()
    assert ended(background)
    assert all(future.done() for future in running)


def test_dropping_ends_the_threads():
    background = Background(1, "test")
    background.submit(len, "").result(GIVE_UP_S)
    (thread,) = background._threads
    del background
    thread.join(GIVE_UP_S)
    assert not thread.is_alive()


def test_arguments_are_freed_after_the_call(background):
    class Big:
        pass

    big = Big()
    freed = weakref.ref(big)
    future = background.submit(id, big)
    del big
    future.result(GIVE_UP_S)
    background.close()
    assert ended(background)
    assert freed() is None


def test_exception_leaves_no_reference_cycle(background):
    class Failed(Exception):
        pass

    def fail():
        raise Failed

    gc.disable()
    try:
        future = background.submit(fail)
        freed = weakref.ref(future.exception(GIVE_UP_S))
        background.close()
        assert ended(background)
        del future
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)
def test_fork_has_no_threads_and_closes_nothing(background):
    background.submit(len, "").result(GIVE_UP_S)
    child = os.fork()
    if child == 0:
        lost = background.is_in_fork
        background.close()
        background.join(GIVE_UP_S)
        os._exit(0 if lost else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not background.is_in_fork
    assert background.submit(max, 1, 2).result(GIVE_UP_S) == 2


def test_close_ends_loops_after_the_current_call(background, gate):
    calls = []
    begun = threading.Event()

    def endless():
        while True:
            yield len(calls)

    def call(x):
        calls.append(x)
        if x == 3:
            begun.set()
            gate.wait()

    future = background.submit(iterators.take, map(call, endless()), 10**9)
    assert begun.wait(GIVE_UP_S)
    background.close()
    gate.set()
    assert isinstance(future.exception(GIVE_UP_S), cancellation.Cancelled)
    assert calls == [0, 1, 2, 3]
    assert ended(background)
    # A later thread may reuse the identifier of a cancelled one.
    assert cancellation.check() is None


def test_only_cancelled_threads_raise():
    cancellation.cancel(threading.get_ident() + 1)
    try:
        cancellation.check()
        cancellation.cancel(threading.get_ident())
        with pytest.raises(cancellation.Cancelled):
            iterators.take(iter("abc"), 2)
        cancellation.revive(threading.get_ident())
        assert iterators.take(iter("abc"), 2) == ["a", "b"]
    finally:
        cancellation.revive_all()


class Blocking:
    """A program of one stream whose outputs after the first wait at a gate."""

    def __init__(self, gate):
        self.gate = gate
        self.reached = threading.Event()
        self.opened = []
        self.stages = {}

    def open_stream(self, number):
        self.opened.append(BlockingStream(self, number))
        return self.opened[-1]


class BlockingStream:
    def __init__(self, program, number):
        self.program = program
        self.position, self.keys = (0,), None
        self.record_errors = RecordErrors(number)
        self.closed = threading.Event()

    def seek(self, position):
        self.position = position

    def next(self):
        self.position = (self.position[0] + 1,)
        if self.position[0] > 1 and not self.program.gate.is_set():
            self.program.reached.set()
            self.program.gate.wait(GIVE_UP_S)
        return self.position[0]

    def close(self):
        self.closed.set()


def run_ahead(gate):
    program = Blocking(gate)
    run = LocalRun(program, RunPosition(0, 0, [(0,)], [False]), None, ahead=True)
    assert run.next() == 1
    assert program.reached.wait(GIVE_UP_S)
    return program, run


def test_run_closes_while_the_next_output_is_computed(gate):
    program, run = run_ahead(gate)
    run.close()
    (stream,) = program.opened
    assert not stream.closed.is_set()
    gate.set()
    assert stream.closed.wait(GIVE_UP_S)


def test_run_restarts_while_the_next_output_is_computed(gate):
    program, run = run_ahead(gate)
    run.go_to(RunPosition(0, 0, [(0,)], [False]))
    assert run.next() == 1
    before, now = program.opened
    assert not before.closed.is_set()
    gate.set()
    assert before.closed.wait(GIVE_UP_S)
    assert run.next() == 2
    run.close()
    assert now.closed.wait(GIVE_UP_S)
