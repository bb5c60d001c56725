"""Observes our loader while a trainer uses it."""

import collections

import psutil

from gristmill._torch.iterators import LoaderIterator


class Watch:
    """Counts the batches of our iterators, and keeps the iterators.

    Kept iterators are not garbage-collected, so the trainer must end them.

    Args:
        monkeypatch: Undoes the counting.
    """

    def __init__(self, monkeypatch):
        self.batches = collections.Counter()
        self.iterators = []
        start, step = LoaderIterator._start, LoaderIterator.__next__

        def started(iterator, *arguments):
            self.iterators.append(iterator)
            start(iterator, *arguments)

        def stepped(iterator):
            batch = step(iterator)
            self.batches[type(iterator).__name__] += 1
            return batch

        monkeypatch.setattr(LoaderIterator, "_start", started)
        monkeypatch.setattr(LoaderIterator, "__next__", stepped)

    def workers_have_ended(self):
        """Return whether there were any workers and all have ended."""
        workers = [worker for one in self.iterators for worker in one._workers]
        for worker in workers:
            worker.join(30)
        return bool(workers) and not any(_runs(worker.pid) for worker in workers)


def _runs(pid):
    """Return whether a process runs and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
