"""Datasets and samplers with and without states, all importable by workers."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    get_worker_info,
)
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

SIZE = 11


def _worker() -> int:
    info = get_worker_info()
    return info.id if info else 0


class Items(Dataset):
    """Sample i is i."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        return index


class Counting(Items):
    """Counts reads in each worker, and adds the count to the sample."""

    def __init__(self) -> None:
        self.reads = 0

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return [index, self.reads, _worker()]

    def state_dict(self) -> dict[str, Any]:
        return {"reads": self.reads}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reads = state["reads"]


class Numbers(IterableDataset):
    """Counts up. Each worker starts and ends at different numbers."""

    def __iter__(self) -> Iterator[int]:
        yield from range(100 * _worker(), 100 * _worker() + SIZE - 3 * _worker())


class Failing(IterableDataset):
    """Raises an error at every fourth read, and continues after it."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at % 4 == 0:
            raise ValueError(f"number {self.at} is bad")
        if self.at > SIZE:
            raise StopIteration
        return 100 * _worker() + self.at


class StatefulNumbers(Numbers):
    """Its generator stores the position in the dataset."""

    def __init__(self) -> None:
        self.given = 0
        self.start = 0

    def __iter__(self) -> Iterator[int]:
        numbers = list(super().__iter__())
        self.given, self.start = self.start, 0
        while self.given < len(numbers):
            self.given += 1
            yield numbers[self.given - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["given"]


class OwnIterator(Numbers):
    """A dataset that is its own iterator."""

    def __init__(self) -> None:
        self.given = 0
        self.resumed = False

    def __iter__(self) -> Any:
        if not self.resumed:
            self.given = 0
        self.resumed = False
        return self

    def __next__(self) -> int:
        numbers = list(super().__iter__())
        if self.given >= len(numbers):
            raise StopIteration
        self.given += 1
        return numbers[self.given - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


class StatefulIterator:
    """Iterates over a sequence."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = list(numbers)
        self.given = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.given >= len(self.numbers):
            raise StopIteration
        self.given += 1
        return self.numbers[self.given - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"nested": {"given": self.given}, "list": [1, self.given]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["nested"]["given"]


class WithIterator(Numbers):
    """Only its iterators have states."""

    def __iter__(self) -> Any:
        return StatefulIterator(super().__iter__())


class Both(WithIterator):
    """The dataset also has a state, from which its iterators begin."""

    def __init__(self) -> None:
        self.epochs = 0

    def __iter__(self) -> Any:
        self.epochs += 1
        numbers = [1000 * self.epochs + number for number in Numbers.__iter__(self)]
        return StatefulIterator(numbers)

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs - 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epochs = state["epochs"]


class StatefulSampler(torch.utils.data.Sampler):
    """Samples backwards, and stores the position in the sampler."""

    def __init__(self) -> None:
        self.given = 0
        self.start = 0

    def __iter__(self) -> Iterator[int]:
        self.given, self.start = self.start, 0
        while self.given < SIZE:
            self.given += 1
            yield SIZE - self.given

    def __len__(self) -> int:
        return SIZE

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["given"]


class SamplerOfIterators(torch.utils.data.Sampler):
    """Only its iterators have states."""

    def __init__(self, values: Any = range(SIZE - 1, -1, -1)) -> None:
        self.values = values

    def __iter__(self) -> Any:
        return StatefulIterator(self.values)

    def __len__(self) -> int:
        return len(self.values)


class StatefulBatches(StatefulSampler):
    """A batch sampler with a state."""

    def __iter__(self) -> Any:
        yield from ([index, 0] for index in super().__iter__())


BATCHES = [[0, 1], [2], [1, 1, 1], [3, 4], [5, 9]]

DATASETS: dict[str, Callable[[], Any]] = {
    "items": Items,
    "counting": Counting,
    "numbers": Numbers,
    "stateful numbers": StatefulNumbers,
    "own iterator": OwnIterator,
    "with iterator": WithIterator,
    "both": Both,
}
STREAMS = [name for name in DATASETS if name not in ("items", "counting")]

# No sampler draws random numbers, so torchdata's loader gives the same order.
SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "none": lambda: {"batch_size": 2},
    "none, full": lambda: {"batch_size": 3, "drop_last": True},
    "none, no batches": lambda: {"batch_size": None},
    "list": lambda: {"sampler": [3, 1, 2, 2, 0], "batch_size": 2},
    "list, no batches": lambda: {"sampler": [3, 1, 2, 2, 0], "batch_size": None},
    "stateful": lambda: {"sampler": StatefulSampler(), "batch_size": 2},
    "stateful, no batches": lambda: {"sampler": StatefulSampler(), "batch_size": None},
    "iterators": lambda: {"sampler": SamplerOfIterators(), "batch_size": 4},
    "iterators, no batches": lambda: {
        "sampler": SamplerOfIterators(),
        "batch_size": None,
    },
    "batches": lambda: {"batch_sampler": BATCHES},
    "torch's batches": lambda: {"batch_sampler": BatchSampler(range(SIZE), 4, False)},
    "stateful batches": lambda: {"batch_sampler": StatefulBatches()},
    "batches' iterators": lambda: {"batch_sampler": SamplerOfIterators(BATCHES)},
    "distributed": lambda: {
        "sampler": DistributedSampler(Items(), 2, 1, seed=3),
        "batch_size": 2,
    },
    "stateful distributed": lambda: {
        "sampler": StatefulDistributedSampler(Items(), 2, 1, seed=3),
        "batch_size": 2,
    },
}
