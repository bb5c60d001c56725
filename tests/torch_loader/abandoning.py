"""A stream that logs when its iterations begin and end, and ways to abandon one."""

import gc

from torch.utils.data import IterableDataset


def iterate(log):
    note(log, "begun")
    try:
        yield from range(1000)
    finally:
        note(log, "ended")


def note(log, word):
    with open(log, "a") as file:
        file.write(f"{word}\n")


class Iterator:
    """The same as `iterate`, without a generator."""

    def __init__(self, log):
        self.log = log
        self.numbers = iter(range(1000))
        note(log, "begun")

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.numbers)

    def __del__(self):
        note(self.log, "ended")


class Stream(IterableDataset):
    def __init__(self, iterate, log):
        self.iterate = iterate
        self.log = log

    def __iter__(self):
        return self.iterate(self.log)


def has_ended(log):
    """Return whether all iterations that began have ended."""
    words = log.read_text().split()
    return 0 < words.count("begun") == words.count("ended")


def leave_loop(loader):
    for _ in loader:
        break


def raise_in_loop(loader):
    try:
        for _ in loader:
            raise ValueError("in the loop")
    except ValueError:
        pass


def delete(loader):
    iterator = iter(loader)
    next(iterator)
    del iterator
    gc.collect()


def begin_again(loader):
    next(iter(loader))
    next(iter(loader))


WAYS = {
    "break": leave_loop,
    "exception": raise_in_loop,
    "del": delete,
    "second iter": begin_again,
}


def identity(batch):
    return batch


OPTIONS = {
    "default collate": {"batch_size": 4},
    "own collate": {"batch_size": 4, "collate_fn": identity},
    "samples": {"batch_size": None},
    "persistent": {"batch_size": 4, "persistent_workers": True},
}
