"""Subclasses of torch's loader like those in libraries."""

import queue
import threading
from multiprocessing.context import SpawnContext

import torch
import torch.utils.data
from torch.utils.data import dataloader


class Forever:
    """Repeats the epochs of a sampler forever."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        while True:
            yield from self.sampler


class Unfrozen(torch.utils.data.DataLoader):
    """Like timm's loader: replaces the sampler and uses one iterator for all epochs."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batch_sampler = Forever(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Endless(dataloader.DataLoader):
    """Like Ultralytics' loader: the same by other means, and it ends its workers."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Forever(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

    def reset(self):
        self.iterator = self._get_iterator()

    def end(self):
        for worker in getattr(self.iterator, "_workers", ()):
            if worker.is_alive():
                worker.terminate()
        if hasattr(self.iterator, "_shutdown_workers"):
            self.iterator._shutdown_workers()


class Transforming:
    """Wraps an iterator of torch, and changes its batches in the main process."""

    def __init__(self, iterator, change):
        assert isinstance(iterator, dataloader._BaseDataLoaderIter)
        self.iterator = iterator
        self.change = change

    def __iter__(self):
        return self

    def _reset(self, loader, first_iter=False):
        self.iterator._reset(loader, first_iter)

    def __len__(self):
        return len(self.iterator)

    def __next__(self):
        return self.change(next(self.iterator))


class Stacked:
    """A collate function that is an object."""

    def __call__(self, samples):
        return torch.stack(samples)


class Graphs(torch.utils.data.DataLoader):
    """Like PyG's loader: has its own collate function, and wraps its iterators."""

    def __init__(self, dataset, batch_size=1, shuffle=False, **kwargs):
        kwargs.pop("collate_fn", None)
        super().__init__(dataset, batch_size, shuffle, collate_fn=Stacked(), **kwargs)

    def _get_iterator(self):
        return Transforming(super()._get_iterator(), torch.neg)


class Seeded(torch.utils.data.DataLoader):
    """Like MONAI's loader: draws a random number, and sets a worker_init_fn."""

    def __init__(self, dataset, num_workers=0, **kwargs):
        torch.empty((), dtype=torch.int64).random_()
        kwargs.setdefault("worker_init_fn", torch.manual_seed)
        super().__init__(dataset=dataset, num_workers=num_workers, **kwargs)


class Buffered(Seeded):
    """Like MONAI's loader: a thread reads batches ahead."""

    def __iter__(self):
        batches = queue.Queue(1)

        def fill():
            for batch in super(Buffered, self).__iter__():
                batches.put(batch)
            batches.put(None)

        thread = threading.Thread(target=fill)
        thread.start()
        while (batch := batches.get()) is not None:
            yield batch
        thread.join()


class _ThreadProcess(threading.Thread):
    """A thread with the attributes that torch needs of a process."""

    @property
    def pid(self):
        return id(self)


class _ThreadQueue(queue.Queue):
    def close(self):
        pass

    def cancel_join_thread(self):
        pass


class Threads(SpawnContext):
    """Like MONAI's context: starts threads instead of processes."""

    _name = "threads"
    Process = _ThreadProcess
    Queue = _ThreadQueue
