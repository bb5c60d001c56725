"""Tests of batches on a device: values, state, and reuse of memory."""

import collections
import gc
import random
import threading
import types
import weakref

import numpy as np
import pytest
import torch
import torchdata.stateful_dataloader as torchdata

import gristmill as g
import gristmill.torch as adapter
from gristmill._torch.device.cuda import Cuda, CudaCopies
from support.fake_cuda import FakeCuda
from support.labelling import FailsAt, Labelled
from support.waiting import started_since

# torchdata calls a deprecated function of torch.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

Pair = collections.namedtuple("Pair", ["image", "label"])
WIDTH = 512


def loader(operations=(), *, records=400, batch=40, **options):
    """Return a loader of batches of 80 KiB of rows, and of labels too small for a slot.

    Row i is float32 filled with i.
    """
    rows = np.repeat(np.arange(records, dtype=np.float32)[:, None], WIDTH, axis=1)
    return g.DataLoader(
        data_source=rows,
        sampler=g.SequentialSampler(records),
        operations=[Labelled(), *operations, g.Batch(batch)],
        **options,
    )


def on_fake(batches, cuda, depth=2):
    """Return what `to_device` returns on a machine with a CUDA device."""
    return adapter.DeviceIterator(batches, CudaCopies(cuda, depth), depth)


# On the CPU, and on the meta device


def test_cpu_batches_are_not_copied_and_start_no_thread():
    array, tensor = np.arange(4.0), torch.zeros(2, 3)
    before = set(threading.enumerate())
    batches = adapter.to_device([{"a": array, "t": tensor}], "cpu")
    [batch] = batches
    assert not started_since(before)
    assert batch["a"].data_ptr() == array.ctypes.data
    assert batch["t"] is tensor


@pytest.mark.multiprocess
def test_cpu_batches_of_workers_stay_in_their_slots():
    batches = adapter.to_device(loader(worker_count=2, streams=1), "cpu")
    kept = list(batches)
    batches.close()
    for number, batch in enumerate(kept):
        expected = torch.arange(40 * number, 40 * number + 40)
        assert bool((batch["x"] == expected[:, None]).all())
        assert batch["label"].tolist() == expected.tolist()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_trees_keep_their_structure(device):
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    ordered = collections.OrderedDict(b=np.zeros(2), a=torch.ones(1))
    user = collections.UserDict(x=torch.ones(1))
    fixed = types.MappingProxyType({"x": torch.ones(1)})
    batch = {"pair": Pair(np.ones(2), "text"), "many": [ordered, (None, 3)]}
    batch |= {"packed": packed, "user": user, "fixed": fixed}
    [found] = adapter.to_device([batch], device)
    assert type(found["pair"]) is Pair
    assert found["pair"].image.device.type == device
    assert found["pair"].label == "text"
    assert list(found["many"][0]) == ["b", "a"]
    assert type(found["many"][0]) is collections.OrderedDict
    assert found["many"][0]["a"].device.type == device
    assert found["many"][1] == (None, 3)
    assert type(found["packed"]) is type(packed)
    assert found["packed"].data.device.type == device
    assert type(found["user"]) is collections.UserDict
    assert found["user"]["x"].device.type == found["fixed"]["x"].device.type == device
    assert isinstance(ordered["b"], np.ndarray)  # The given element does not change.


def test_depth_must_be_positive():
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        adapter.to_device([], "cpu", depth=0)


def test_unknown_device_is_refused_at_once():
    with pytest.raises(RuntimeError, match="abacus"):
        adapter.to_device([], "abacus")


def test_batches_are_read_ahead_only_for_a_device():
    for device, ahead in [("cpu", 1), ("meta", 3)]:
        drawn = []
        batches = (drawn.append(n) or np.zeros(n) for n in range(9))
        next(adapter.to_device(batches, device, depth=3))
        assert len(drawn) == ahead


# State after the last delivered batch


@pytest.mark.parametrize("wrap", [iter, adapter.as_tensors])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_state_is_after_last_delivered_batch(device, wrap):
    plain = iter(loader())
    batches = adapter.to_device(wrap(loader()), device, depth=3)
    for _ in range(4):
        assert batches.get_state() == plain.get_state()
        next(batches), next(plain)
    state = batches.get_state()
    assert state == plain.get_state()
    again = adapter.to_device(loader(), "cpu")
    again.set_state(state)
    rest = [batch["label"].tolist() for batch in again]
    assert rest == [batch["label"].tolist() for batch in plain]
    assert len(list(batches)) == len(rest) == 6
    batches.set_state(state)
    assert batches.get_state() == state
    assert len(list(batches)) == 6


def stateful(**options):
    return torchdata.StatefulDataLoader(
        range(40), batch_size=4, shuffle=True, **options
    )


@pytest.mark.parametrize("drawn", [0, 1, 5])
def test_state_dict_is_after_last_delivered_batch(drawn):
    torch.manual_seed(3)
    expected = [batch.tolist() for batch in stateful()]
    torch.manual_seed(3)
    batches = adapter.to_device(stateful(), "meta", depth=3)
    for _ in range(drawn):
        next(batches)
    state = batches.state_dict()
    assert state == batches.get_state()
    again = adapter.to_device(stateful(), "cpu")
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == expected[drawn:]
    batches.close()


def test_close_rewinds_stateful_loader_to_last_batch():
    torch.manual_seed(3)
    expected = [batch.tolist() for batch in stateful()]
    torch.manual_seed(3)
    made = stateful()
    batches = adapter.to_device(made, "meta", depth=4)
    next(batches), next(batches)
    batches.close()
    assert [batch.tolist() for batch in made] == expected[2:]


def test_get_state_of_loader_without_state_raises():
    made = torch.utils.data.DataLoader(torch.arange(6), batch_size=2)
    batches = adapter.to_device(made, "cpu")
    assert not hasattr(batches, "state_dict")
    with pytest.raises(TypeError, match=r"has no get_state\(\)"):
        batches.get_state()
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    batches.start_prefetch()
    batches.close()


def test_close_rewinds_to_last_delivered_batch():
    batches = adapter.to_device(loader(), "meta", depth=3)
    next(batches)
    batches.close()
    again = iter(loader())
    again.set_state(batches.get_state())
    assert next(again)["label"][0] == 40


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_exception_keeps_its_position(depth):
    batches = on_fake(loader([FailsAt(90)]), FakeCuda(), depth)
    plain = iter(loader([FailsAt(90)]))
    for _ in range(2):
        next(batches), next(plain)
        assert batches.get_state() == plain.get_state()
    for iterator in (batches, plain):
        with pytest.raises(KeyError, match="no such file"):
            next(iterator)
    assert batches.get_state() == plain.get_state()
    next(batches), next(plain)
    assert batches.get_state() == plain.get_state()
    batches.close()


# Reuse of memory on a device that executes everything late


class Program:
    """Uses batches like training: it queues work on them and continues."""

    def __init__(self, cuda):
        self._cuda = cuda
        self.seen = []

    def use(self, batch):
        # Keep only the address: the program may drop the batch before this runs.
        shape = batch["x"].shape
        memory = self._cuda.memory_at(batch["x"].data_ptr())

        def work():
            values = memory.view(torch.float32).view(shape)
            assert bool((values == values[:, :1]).all())
            self.seen += values[:, 0].tolist()

        self._cuda.current_stream().enqueue(work)


@pytest.mark.multiprocess
@pytest.mark.parametrize(("seed", "depth"), [(0, 1), (1, 2), (2, 2), (3, 5)])
def test_every_value_arrives_while_batches_are_kept(seed, depth):
    cuda, chance = FakeCuda(seed), random.Random(seed)
    program, kept = Program(cuda), []
    batches = on_fake(loader(records=1600, worker_count=2, streams=1), cuda, depth)
    for batch in batches:
        program.use(batch)
        if chance.random() < 0.3:
            kept.append(batch)
        if chance.random() < 0.3:
            kept = kept[chance.randrange(3) :]
        del batch
    batches.close()
    cuda.finish()
    assert program.seen == list(range(1600))
    assert not cuda.registered


@pytest.mark.multiprocess
def test_warm_iterator_registers_and_allocates_nothing():
    cuda = FakeCuda()
    batches = on_fake(loader(records=3200, worker_count=2, streams=1), cuda)
    for number, batch in enumerate(batches):
        if number == 40:
            warm = dict(cuda.counts)
        del batch
    assert number == 79
    # Only the labels, which the loader copied out of the slot, go through staging.
    assert cuda.counts.pop("staged") == 80
    del warm["staged"]
    assert dict(cuda.counts) == warm
    assert cuda.counts["registered"] == len(cuda.registered) <= 16
    assert cuda.counts["allocations"] <= 2 * (2 + 1)
    batches.close()
    assert not cuda.registered


def remembered(count, held):
    """Yield tensors, and put weak references to them into a list."""
    for number in range(count):
        host = torch.full((4,), float(number))
        held.append(weakref.ref(host))
        yield host
        del host


def test_host_memory_is_released_after_copy():
    cuda, held = FakeCuda(pinned=True), []
    cuda.frozen = True
    batches = on_fake(remembered(8, held), cuda, depth=2)
    next(batches)
    assert [ref() is not None for ref in held] == [True, True]
    cuda.frozen = False
    cuda.finish()
    next(batches)
    assert [ref() is not None for ref in held] == [False, False, True]
    batches.close()


def test_program_waits_for_slow_copies():
    cuda, held = FakeCuda(pinned=True), []
    behind = [
        sum(ref() is not None for ref in held)
        for _ in on_fake(remembered(200, held), cuda, depth=2)
    ]
    assert max(behind) == 2 + 1


@pytest.mark.multiprocess
def test_failed_registration_copies_through_staging():
    cuda = FakeCuda(refuse=True)
    program = Program(cuda)
    batches = on_fake(loader(worker_count=2, streams=1), cuda)
    for batch in batches:
        program.use(batch)
    cuda.finish()
    assert program.seen == list(range(400))
    assert cuda.counts["registered"] == 1
    assert cuda.counts["staged"] == 2 * 10
    batches.close()


@pytest.mark.multiprocess
def test_unclosed_iterator_unregisters_its_memory():
    cuda = FakeCuda()
    batches = on_fake(loader(worker_count=2, streams=1), cuda)
    next(batches), next(batches)
    assert cuda.registered
    del batches
    gc.collect()
    assert not cuda.registered
    assert not cuda.reading


def test_batches_of_torch_loader_arrive():
    cuda, data = FakeCuda(seed=5), torch.arange(400.0)
    program = Program(cuda)
    rows = torch.utils.data.TensorDataset(data[:, None].repeat(1, 8))
    for kind in (torch.utils.data.DataLoader, adapter.DataLoader):
        for [batch] in on_fake(kind(rows, batch_size=40), cuda, 3):
            program.use({"x": batch})
            del batch
    cuda.finish()
    assert program.seen == 2 * data.tolist()


@pytest.mark.multiprocess
def test_position_can_be_set_during_copies():
    cuda, program = FakeCuda(), None
    batches = on_fake(loader(worker_count=2, streams=1), cuda, depth=3)
    next(batches)
    state = batches.get_state()
    for _ in range(3):
        program = Program(cuda)
        for batch in batches:
            program.use(batch)
        cuda.finish()
        assert program.seen == list(range(40, 400))
        batches.set_state(state)
    next(batches)
    batches.set_state(state)
    assert not cuda.reading
    batches.close()


def test_memory_is_kept_for_a_second_stream():
    cuda = FakeCuda()
    batches = on_fake([torch.ones(2), (torch.ones(2), torch.ones(3))], cuda)
    next(batches)
    assert cuda.counts["used on another stream"] == 0
    cuda.current = cuda.new_stream()
    next(batches)
    assert cuda.counts["used on another stream"] == 2


# Calls of CUDA, tested without a device


class Runtime:
    """Replaces torch.cuda.cudart()."""

    def __init__(self, error):
        self.calls = []
        self._error = error

    def cudaHostRegister(self, address, nbytes, flags):
        self.calls.append(("register", address, nbytes, flags))
        return self._error

    def cudaHostUnregister(self, address):
        self.calls.append(("unregister", address))
        return 0


@pytest.mark.parametrize("error", [0, 2])
def test_register_returns_success_and_clears_error(monkeypatch, error):
    runtime, launched = Runtime(error), []

    def ones(size, device):
        launched.append((size, device))
        raise RuntimeError("the error that CUDA remembered")

    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch, "ones", ones)
    cuda = Cuda(torch.device("cuda", 0))
    assert cuda.register(4096, 8192) is (error == 0)
    assert launched == ([(1, torch.device("cuda", 0))] if error else [])
    cuda.unregister(4096)
    assert runtime.calls == [("register", 4096, 8192, 1), ("unregister", 4096)]


def test_device_without_index_is_current_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert Cuda(torch.device("cuda")).device == torch.device("cuda", 3)


@pytest.mark.multiprocess
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_real_device_gets_every_value_in_bounded_memory():
    batches = adapter.to_device(loader(records=8000, worker_count=2), "cuda")
    totals = []
    for number, batch in enumerate(batches):
        assert batch["x"].is_cuda
        if number == 50:
            warm = torch.cuda.memory_stats()["num_device_alloc"]
        totals.append(batch["x"].sum(dtype=torch.float64))
        del batch
    assert torch.cuda.memory_stats()["num_device_alloc"] == warm
    expected = [WIDTH * 40 * (80 * n + 39) / 2 for n in range(200)]
    assert sorted(torch.stack(totals).tolist()) == expected
    batches.close()
