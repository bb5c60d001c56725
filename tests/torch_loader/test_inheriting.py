"""Tests that workers of the launcher share the same objects as spawned ones."""

import multiprocessing
import socket
from multiprocessing import shared_memory

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from faults.prepared import run
from gristmill.torch import DataLoader, StatefulDataLoader

pytestmark = pytest.mark.multiprocess

TorchLoader = torch.utils.data.DataLoader
SPAWN = multiprocessing.get_context("spawn")
SIZE = 4


class Add:
    """Adds the index to an object."""

    def __init__(self, thing):
        self.thing = thing


class ToValue(Add):
    def __call__(self, index):
        with self.thing.get_lock():
            self.thing.value += index


class ToArray(Add):
    def __call__(self, index):
        self.thing[index] = index


class ToQueue(Add):
    def __call__(self, index):
        self.thing.put(index)


class ToPipe(Add):
    def __call__(self, index):
        self.thing.send(index)


class ToSocket(Add):
    def __call__(self, index):
        self.thing.send(bytes([index]))


class ToList(Add):
    def __call__(self, index):
        self.thing.append(index)


class ToBuffer(Add):
    def __call__(self, index):
        self.thing.buf[index] = index


class ToModule(Add):
    def __call__(self, index):
        with torch.no_grad():
            self.thing.weight[0, index] = index


class Release(Add):
    def __call__(self, index):
        for _ in range(index):
            self.thing.release()


class Notify(Add):
    def __call__(self, index):
        condition, event = self.thing
        with condition:
            condition.notify_all()
        if index == SIZE - 1:
            event.set()


class Adding(Dataset):
    def __init__(self, parts):
        self.parts = parts

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        for part in self.parts:
            part(index)
        return index


def launched(dataset, loader_class=DataLoader, **options):
    options = {"num_workers": 2, "batch_size": None, **options}
    return loader_class(dataset, multiprocessing_context="launcher", **options)


def test_launcher_workers_share_same_objects_as_spawn():
    value, array = SPAWN.Value("i", 0), SPAWN.Array("i", SIZE)
    queue, simple = SPAWN.Queue(), SPAWN.SimpleQueue()
    near, far = SPAWN.Pipe()
    end, other_end = socket.socketpair(type=socket.SOCK_DGRAM)
    tensor = torch.zeros(SIZE).share_memory_()
    raw = torch.zeros(SIZE, dtype=torch.uint8).share_memory_().untyped_storage()
    module = torch.nn.Linear(SIZE, 1).share_memory()
    semaphore, condition, event = SPAWN.Semaphore(0), SPAWN.Condition(), SPAWN.Event()
    memory = shared_memory.SharedMemory(create=True, size=SIZE)
    numbers = [*range(SIZE)]
    with SPAWN.Manager() as manager, near, far, end, other_end:
        proxy = manager.list()
        parts = [
            ToValue(value),
            ToArray(array),
            ToArray(tensor),
            ToArray(raw),
            ToQueue(queue),
            ToQueue(simple),
            ToPipe(far),
            ToSocket(other_end),
            ToList(proxy),
            ToBuffer(memory),
            ToModule(module),
            Release(semaphore),
            Notify((condition, event)),
        ]
        assert list(launched(Adding(parts))) == numbers
        assert value.value == sum(numbers)
        assert list(array) == tensor.tolist() == raw.tolist() == numbers
        assert sorted(queue.get(timeout=30) for _ in numbers) == numbers
        assert sorted(simple.get() for _ in numbers) == numbers
        assert sorted(near.recv() for _ in numbers) == numbers
        assert sorted(end.recv(9)[0] for _ in numbers) == numbers
        assert sorted(proxy) == numbers
        assert [*memory.buf[:SIZE]] == numbers
        assert module.weight[0, 1:].tolist() == numbers[1:]
        assert semaphore.get_value() == sum(numbers)
        assert event.is_set()
    # A resource tracker of the workers would have removed it.
    shared_memory.SharedMemory(memory.name).close()
    memory.close()
    memory.unlink()


def test_more_tensors_than_descriptors_in_message_share():
    tensors = [torch.zeros(SIZE).share_memory_() for _ in range(300)]
    list(launched(Adding([ToArray(tensor) for tensor in tensors]), num_workers=1))
    for tensor in tensors:
        assert tensor.tolist() == [*range(SIZE)]


def test_restarted_workers_share_objects():
    run("torch_loader/inheriting/killed_workers")


class Epochs(IterableDataset):
    """Gives its epoch, which the program sets in shared memory."""

    def __init__(self):
        self.epoch = torch.zeros(1).share_memory_()

    def __iter__(self):
        yield int(self.epoch)


@pytest.mark.parametrize("loader_class", [DataLoader, StatefulDataLoader])
def test_persistent_workers_see_changes_of_program(loader_class):
    dataset = Epochs()
    loader = launched(dataset, loader_class, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        dataset.epoch.fill_(epoch)
        assert list(loader) == [epoch]


def rows(shards):
    for shard in shards:
        for number in range(3):
            yield {"x": 10 * shard + number}


def test_hugging_face_iterable_dataset_is_read():
    import datasets

    made = datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": [0, 1]})
    dataset = made.shuffle(seed=1, buffer_size=2)
    loader = launched(dataset, persistent_workers=True)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        want = TorchLoader(
            dataset, batch_size=None, num_workers=2, multiprocessing_context="fork"
        )
        assert list(loader) == list(want)
