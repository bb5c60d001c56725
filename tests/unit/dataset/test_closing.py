"""Closing an iterator does not wait for user code, and no more user code runs."""

import gc
import subprocess
import threading
import weakref

import pytest

import gristmill as g
from faults.scripts import command, environment
from gristmill import experimental
from support.waiting import started_since, wait_until_ended

# A failing test must report, not wait forever.
GIVE_UP_S = 30


class Gate:
    """Passes numbers through, but blocks the call with number `last` until opened."""

    def __init__(self, last=2):
        self.last = last
        self.calls = []
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.passed = threading.Event()

    def __deepcopy__(self, memo):
        return self

    def __call__(self, number):
        self.calls.append(number)
        if number == self.last:
            self.reached.set()
            self.opened.wait(GIVE_UP_S)
            self.passed.set()
        return number


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def threads():
    """Return a function that lists the threads that this test has started."""
    before = set(threading.enumerate())
    return lambda: started_since(before)


class Own(g.IterDataset):
    """A user's dataset whose iterators return the results of a call."""

    def __init__(self, call):
        super().__init__()
        self.call = call
        self.closed = []

    def __deepcopy__(self, memo):
        return self

    def set_slice(self, sl, sequential_slice=False):
        pass

    def __iter__(self):
        return OwnIterator(self)


class OwnIterator(g.DatasetIterator):
    def __init__(self, dataset):
        super().__init__()
        self.dataset = dataset
        self.given = 0

    def __next__(self):
        self.given += 1
        return self.dataset.call(self.given - 1)

    def get_state(self):
        return {"given": self.given}

    def set_state(self, state):
        self.given = state["given"]

    def close(self):
        self.dataset.closed.append(threading.get_ident())
        super().close()


def numbers(call):
    return g.MapDataset.range(1000).map(call).to_iter_dataset()


def read_ahead(call):
    options = g.ReadOptions(num_threads=4, prefetch_buffer_size=8)
    return g.MapDataset.range(1000).map(call).to_iter_dataset(options)


def threaded(dataset):
    return experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=4)


CHAINS = {
    "prefetch": lambda call: threaded(numbers(call)),
    "nested prefetch": lambda call: threaded(threaded(numbers(call)).map(lambda x: x)),
    "own iterator": lambda call: threaded(Own(call)),
    "own iterator, batched": lambda call: threaded(Own(call).batch(5)),
    "own iterator, filtered": lambda call: threaded(Own(call).filter(lambda x: x < 2)),
    "own iterator, flattened": lambda call: threaded(
        experimental.FlatMapIterDataset(Own(call), FirstTwo())
    ),
    "batch": lambda call: threaded(numbers(call).batch(5)),
    "multithread": lambda call: experimental.multithread_prefetch(numbers(call), 1, 4),
    "multithread, endless filter": lambda call: experimental.multithread_prefetch(
        g.MapDataset.range(3)
        .repeat()
        .map(call)
        .to_iter_dataset()
        .filter(lambda x: False),
        1,
        1,
    ),
    "two threads": lambda call: experimental.multithread_prefetch(numbers(call), 2, 4),
    "interleave": lambda call: experimental.InterleaveIterDataset(
        [numbers(call)], cycle_length=1, iter_buffer_size=4
    ),
    "read threads": read_ahead,
    "read threads below a thread": lambda call: threaded(read_ahead(call)),
}


class FirstTwo(experimental.FlatMapTransform):
    max_fan_out = 1

    def flat_map(self, element):
        return [element] if element < 2 else []


def begun(chain, gate, threads, call=None):
    """Return an iterator whose thread is blocked at the gate."""
    iterator = iter(CHAINS[chain](call or gate))
    iterator.start = iterator.get_state()
    iterator.start_prefetch()
    assert gate.reached.wait(GIVE_UP_S)
    assert threads()
    return iterator


@pytest.mark.parametrize("chain", CHAINS)
def test_close_returns_while_an_element_is_computed(chain, gate, threads):
    iterator = begun(chain, gate, threads)
    iterator.close()
    assert not gate.passed.is_set()


@pytest.mark.parametrize("chain", CHAINS)
def test_dropping_returns_while_an_element_is_computed(chain, gate, threads):
    iterator = begun(chain, gate, threads)
    del iterator
    gc.collect()
    assert not gate.passed.is_set()


@pytest.mark.parametrize("chain", CHAINS)
def test_remaining_threads_end_without_further_calls(chain, gate, threads):
    iterator = begun(chain, gate, threads)
    iterator.close()
    left = threads()
    calls = len(gate.calls)
    gate.opened.set()
    wait_until_ended(left)
    assert len(gate.calls) == calls


class Passing:
    """Calls a gate; unlike the gate, it is freed with the dataset."""

    def __init__(self, gate):
        self.gate = gate

    def __deepcopy__(self, memo):
        return self

    def __call__(self, number):
        return self.gate(number)


@pytest.mark.parametrize("chain", CHAINS)
def test_dataset_is_freed_when_the_last_call_returns(chain, gate, threads):
    call = Passing(gate)
    freed = weakref.ref(call)
    iterator = begun(chain, gate, threads, call)
    left = threads()
    del call, iterator
    assert freed() is not None
    gate.opened.set()
    wait_until_ended(left)
    gc.collect()
    assert freed() is None


@pytest.mark.claim(
    "set_state and close of a ThreadPrefetchDatasetIterator wait for the "
    "element that its thread computes"
)
@pytest.mark.parametrize("chain", CHAINS)
def test_set_state_returns_while_an_element_is_computed(chain, gate, threads):
    iterator = begun(chain, gate, threads)
    gate.last = None
    start = iterator.start
    iterator.set_state(start)
    assert iterator.get_state() == start
    iterator.close()
    assert not gate.passed.is_set()


@pytest.mark.parametrize(
    "chain", [name for name in CHAINS if "filter" not in name and "flat" not in name]
)
def test_elements_restart_while_an_old_call_runs(chain, gate, threads):
    iterator = begun(chain, gate, threads)
    gate.last = None
    iterator.set_state(iterator.start)
    again = [next(iterator) for _ in range(4)]
    expected = iter(CHAINS[chain](Gate(None)))
    for element in again:
        assert str(element) == str(next(expected))
    iterator.close()


def test_user_iterator_is_closed_by_its_thread(gate, threads):
    dataset = Own(gate)
    iterator = iter(threaded(dataset))
    iterator.start_prefetch()
    assert gate.reached.wait(GIVE_UP_S)
    left = threads()
    iterator.close()
    assert dataset.closed == []
    gate.opened.set()
    wait_until_ended(left)
    assert dataset.closed == [thread.ident for thread in left]


def test_interleave_closes_while_dataset_is_opened_ahead(gate, threads):
    def part(index):
        if index:
            gate(index)
        else:  # While this one is slow, others are opened ahead.
            gate.reached.wait(GIVE_UP_S)
        return numbers(lambda x: x)

    parts = g.MapDataset.range(9).map(part)
    iterator = iter(experimental.InterleaveIterDataset(parts, cycle_length=1))
    gate.last = 1
    assert next(iterator) == 0
    left = threads()
    iterator.close()
    calls = len(gate.calls)
    gate.opened.set()
    wait_until_ended(left)
    assert len(gate.calls) == calls


class Plain:
    """An iterator that cannot be recreated."""

    def __init__(self, call):
        self.call = call
        self.given = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        return self.call(self.given - 1)

    def get_state(self):
        return {"given": self.given}

    def set_state(self, state):
        self.given = state["given"]


def test_next_waits_if_iterator_cannot_be_recreated(gate, threads):
    iterator = experimental.ThreadPrefetchDatasetIterator(Plain(gate), 4)
    start = iterator.get_state()
    iterator.start_prefetch()
    assert gate.reached.wait(GIVE_UP_S)
    for state in ({"given": 5}, start):
        iterator.set_state(state)
        assert iterator.get_state() == state
    gate.last = None
    gate.opened.set()
    assert [next(iterator) for _ in range(4)] == [0, 1, 2, 3]
    assert gate.calls == [0, 1, 2, *range(len(gate.calls) - 3)]


def test_loader_closes_while_records_are_read(gate, threads):
    class Source:
        def __len__(self):
            return 1000

        def __getitem__(self, key):
            return gate(key)

    source = Source()
    loader = g.DataLoader(
        data_source=source, sampler=g.SequentialSampler(1000), operations=[]
    )
    iterator = iter(loader)
    iterator.start_prefetch()
    assert gate.reached.wait(GIVE_UP_S)
    left = threads()
    iterator.close()
    calls = len(gate.calls)
    gate.opened.set()
    wait_until_ended(left)
    assert len(gate.calls) == calls


@pytest.mark.multiprocess
@pytest.mark.parametrize("how", ["prefetch", "read", "left"])
def test_program_exits_while_an_element_is_computed(how):
    done = subprocess.run(
        [*command("closing/never_ending"), how],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
