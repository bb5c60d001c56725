"""Datasets, samplers and collate functions that loaders are compared on.

Each dataset is made from its length alone, so that two loaders get equal ones.
All are importable, so that workers can be started by any method.
"""

import collections
from collections.abc import Callable
from typing import Any

import datasets as hugging_face
import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

Pair = collections.namedtuple("Pair", ["x", "y"])


class Made(Dataset):
    """A user-defined dataset. Sample i is ``make(i)``."""

    def __init__(self, size: int, make: Callable[[int], Any]) -> None:
        self.size = size
        self.make = make

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Together(Made):
    """Returns all samples of a batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert type(indices) is list
        return [(self.make(index), "together") for index in indices]


class TellsTogether(Made):
    """Returns a description of the indices as its only sample."""

    def __getitems__(self, indices: Any) -> list[Any]:
        return [_told(indices)]


class NotTogether(Made):
    """Disables ``__getitems__``."""

    __getitems__ = None


class Triples(TensorDataset):
    """A subclass whose rows differ from those of its base."""

    def __getitem__(self, index: int) -> Any:
        return tuple(3 * part for part in super().__getitem__(index))


class Stream(IterableDataset):
    """Counts up."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size})"

    def __iter__(self) -> Any:
        return iter(range(self.size))


class LongStream(Stream):
    """Has more samples than its length."""

    def __len__(self) -> int:
        return max(self.size - 3, 1)


class FailingStream(Stream):
    """Raises in the middle."""

    def __iter__(self) -> Any:
        for number in range(self.size):
            if number == 4:
                raise ValueError("bad record in the stream")
            yield number


class Custom(torch.utils.data.Sampler):
    """A user-defined sampler."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Any:
        return iter(range(self.size - 1, -1, -1))

    def __len__(self) -> int:
        return self.size


class Eager(Custom):
    """A user-defined sampler that draws in `__iter__` and counts the calls."""

    times = 0

    def __iter__(self) -> Any:
        self.times += 1
        return iter([self.times, *torch.randperm(self.size - 1).tolist()])


class BackwardsSequential(SequentialSampler):
    """A subclass of a sampler with a native implementation."""

    def __iter__(self) -> Any:
        return reversed(list(super().__iter__()))


def _floats(size: int, *shape: int) -> torch.Tensor:
    rng = np.random.default_rng(size)
    return torch.from_numpy(rng.random((size, *shape), dtype=np.float32))


def _array(dtype: str, *shape: int) -> Callable[[int], np.ndarray]:
    def make(size: int) -> np.ndarray:
        values = np.random.default_rng(size).integers(0, 2, (size, *shape))
        return values.astype(dtype)

    return make


def _read_only(size: int) -> np.ndarray:
    array = np.arange(size)
    array.setflags(write=False)
    return array


def _pairs(size: int) -> TensorDataset:
    return TensorDataset(_floats(size, 5), torch.arange(size))


def _concat(size: int) -> ConcatDataset:
    first = size // 3
    return ConcatDataset([_pairs(first), _pairs(size - first)])


def _mixed_concat(size: int) -> ConcatDataset:
    first = size // 2
    doubles = TensorDataset(_floats(size - first, 5).double(), torch.arange(first))
    return ConcatDataset([_pairs(first), doubles] if first * 2 == size else [_pairs(1)])


def _told(index: Any) -> str:
    return f"{type(index).__name__} {index!r}"


def _boom(index: int) -> int:
    if index == 3:
        raise KeyError("sample 3 is broken")
    return index


def _stops(index: int) -> int:
    if index == 5:
        raise StopIteration
    return index


def _nested(i: int) -> dict[str, Any]:
    return {
        "pair": Pair(np.float32(i), [i, {"deep": torch.ones(2) * i}]),
        "text": f"t{i}",
        "ordered": collections.OrderedDict(b=i * 0.5, a=b"x"),
    }


def _rows(size: int, form: str | None) -> hugging_face.Dataset:
    columns = {
        "number": list(range(size)),
        "weight": [i * 0.5 for i in range(size)],
        "vector": [[float(i), 2.0] for i in range(size)],
        "text": [f"row {i}" for i in range(size)],
    }
    return hugging_face.Dataset.from_dict(columns).with_format(form)


DATASETS: dict[str, Callable[[int], Any]] = {
    # Datasets that are gathered natively.
    "tensors": _pairs,
    "tensor": lambda n: _floats(n, 2, 3),
    "vector": lambda n: torch.arange(n),
    "strided": lambda n: TensorDataset(_floats(4, n).t(), _floats(n, 3, 2).mT),
    "half": lambda n: TensorDataset(_floats(n).half(), _floats(n).bfloat16()),
    "complex": lambda n: TensorDataset(torch.complex(_floats(n), _floats(n))),
    "conjugate": lambda n: TensorDataset(torch.complex(_floats(n), _floats(n)).conj()),
    "no columns": lambda n: torch.empty(n, 0),
    **{
        f"array {dtype}": _array(dtype)
        for dtype in (
            "bool", "int8", "uint8", "int16", "int32", "int64", "uint16", "uint32",
            "uint64", "float16", "float32", "float64", "complex64", "S3", "U3", "O",
            ">i4",
        )
    },
    "matrix": _array("float32", 4),
    "matrix big-endian": _array(">f4", 4),
    "backwards": lambda n: np.arange(n)[::-1],
    "read only": _read_only,
    "subset": lambda n: Subset(_pairs(2 * n), list(range(0, 2 * n, 2))),
    "subset range": lambda n: Subset(_pairs(2 * n), range(n)),
    "subset negative": lambda n: Subset(_pairs(2 * n), [-i for i in range(n)]),
    "subset array": lambda n: Subset(_pairs(2 * n), np.arange(n)),
    "subset tensor": lambda n: Subset(_pairs(2 * n), torch.arange(n)),
    "subset of list": lambda n: Subset(list(range(n)), list(range(n))),
    "subset of subset": lambda n: Subset(Subset(_pairs(n), range(n)), range(n)),
    "subset too far": lambda n: Subset(_pairs(n), [*range(n - 1), n + 5]),
    "concat": _concat,
    "concat of types": _mixed_concat,
    "concat of kinds": lambda n: ConcatDataset([torch.ones(3, 4), _array("f4", 4)(n)]),
    "subset of concat": lambda n: Subset(_concat(n), list(range(n))[::-1]),
    "stack": lambda n: StackDataset(_floats(n, 2), _array("int32")(n)),
    "stack named": lambda n: StackDataset(x=_floats(n, 2), y=_pairs(n)),
    "stack of lists": lambda n: StackDataset(list(range(n)), _floats(n, 2)),
    "stack of subsets": lambda n: StackDataset(a=Subset(_pairs(n), range(n))),
    # Datasets that are read row by row.
    "leaf": lambda n: TensorDataset(_floats(n, 5).requires_grad_()),
    "sparse": lambda n: TensorDataset(_floats(n, 5).to_sparse()),
    "parameter": lambda n: torch.nn.Parameter(_floats(n, 2)),
    "subclass": lambda n: Triples(_floats(n, 5)),
    "ints": lambda n: list(range(n)),
    "range": range,
    "floats": lambda n: [i / 2 for i in range(n)],
    "texts": lambda n: [f"t{i}" for i in range(n)],
    "nothing": lambda n: [None] * n,
    "dict of samples": lambda n: {i: torch.ones(2) * i for i in range(n)},
    "dicts": lambda n: Made(n, lambda i: {"x": torch.ones(3) * i, "label": i}),
    "arrays": lambda n: Made(n, lambda i: np.full((2, 2), i, np.int16)),
    "nested": lambda n: Made(n, _nested),
    "ragged": lambda n: Made(n, lambda i: torch.ones(i % 4)),
    "uneven": lambda n: Made(n, lambda i: [i] * (i % 4 + 1)),
    "together": lambda n: Together(n, lambda i: i),
    "not together": lambda n: NotTogether(n, lambda i: i),
    "tells": lambda n: Made(n, _told),
    "tells together": lambda n: TellsTogether(n, _told),
    "boom": lambda n: Made(n, _boom),
    "stops": lambda n: Made(n, _stops),
    "hugging face": lambda n: _rows(n, None),
    "hugging face torch": lambda n: _rows(n, "torch"),
    "hugging face numpy": lambda n: _rows(n, "numpy"),
    "stream": Stream,
    "long stream": LongStream,
    "failing stream": FailingStream,
}  # fmt: skip


def _generator_function(size: int) -> Any:
    yield from range(size - 1, 0, -1)


def _batched(sampler: str, drop_last: bool = False) -> Callable[..., BatchSampler]:
    def make(dataset: Any, size: int, generator: Any) -> BatchSampler:
        inner = SAMPLERS[sampler](dataset, size, generator)
        return BatchSampler(inner, 4, drop_last)

    return make


SAMPLERS: dict[str, Callable[[Any, int, Any], Any]] = {
    "random": lambda d, n, g: RandomSampler(d, generator=g),
    "random few": lambda d, n, g: RandomSampler(d, num_samples=3, generator=g),
    "random many": lambda d, n, g: RandomSampler(d, num_samples=25, generator=g),
    "replacement": lambda d, n, g: RandomSampler(d, True, 71, generator=g),
    "replacement few": lambda d, n, g: RandomSampler(d, True, 5, generator=g),
    "replacement even": lambda d, n, g: RandomSampler(d, True, 64, generator=g),
    "sequential": lambda d, n, g: SequentialSampler(d),
    "sequential too long": lambda d, n, g: SequentialSampler(range(n + 2)),
    "backwards": lambda d, n, g: BackwardsSequential(d),
    "weighted": lambda d, n, g: WeightedRandomSampler([0.2] * n, 13, True, g),
    "weighted once": lambda d, n, g: WeightedRandomSampler([0.2] * n, 3, False, g),
    "subset": lambda d, n, g: SubsetRandomSampler([1, 0, 2], generator=g),
    "custom": lambda d, n, g: Custom(n),
    "eager": lambda d, n, g: Eager(n),
    "list": lambda d, n, g: [2, 0, 1, 1],
    "negative": lambda d, n, g: [-1, -2, 0],
    "booleans": lambda d, n, g: [True, False],
    "numpy integers": lambda d, n, g: list(np.arange(n)),
    "tensor": lambda d, n, g: torch.arange(n),
    "too far": lambda d, n, g: [0, n + 3, 1],
    "huge": lambda d, n, g: [0, 2**70],
    "keys": lambda d, n, g: ["a", "b"],
    "generator function": lambda d, n, g: _generator_function(n),
    "batched random": _batched("random"),
    "batched random, full ones": _batched("random", drop_last=True),
    "batched many": _batched("random many", drop_last=True),
    "batched replacement": _batched("replacement"),
    "batched weighted": _batched("weighted"),
    "batched list": _batched("list"),
    "batched custom": _batched("custom"),
    "batched eager": _batched("eager"),
    "lists": lambda d, n, g: [[0, 1], [2], [1, 1, 1]],
    "tuples": lambda d, n, g: [(0, 1), (2,)],
    "arrays": lambda d, n, g: [np.array([0, 1]), np.array([True, False])],
    "ranges": lambda d, n, g: [range(0, n, 2), range(3)],
    "tensors": lambda d, n, g: [torch.tensor([0, 1]), torch.tensor([0])],
    "empty lists": lambda d, n, g: [[0, 1], [], [2]],
    "mixed lists": lambda d, n, g: [[0, True], [-1, 0], [0, n + 9], [1]],
}


def _identity(samples: Any) -> Any:
    return samples


def _wrapped(samples: Any) -> Any:
    return ("wrapped", default_collate(samples))


def _failing(samples: Any) -> Any:
    raise RuntimeError("cannot collate these")


COLLATIONS: dict[str, Callable[[Any], Any]] = {
    "identity": _identity,
    "wrapped": _wrapped,
    "default": default_collate,
    "failing": _failing,
}
