"""Tests that parts of a received batch share memory exactly as with torch's loader."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import strategies as st
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from gristmill._torch.batches import pickling
from gristmill.torch import DataLoader
from torch_loader.batches import OwnTensor, Record, Slot, through_torch

TorchLoader = torch.utils.data.DataLoader

SOURCES: dict[str, Callable[[], Any]] = {
    "array": lambda: np.arange(24.0),
    "matrix": lambda: np.arange(24.0).reshape(4, 6),
    "tensor": lambda: torch.arange(24.0),
    "table": lambda: torch.arange(24.0).reshape(4, 6),
    "large array": lambda: np.arange(6000.0),
    "large tensor": lambda: torch.arange(6000.0),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "all": lambda x: x[...],
    "first": lambda x: x[:3],
    "window": lambda x: x[2:9],
    "next window": lambda x: x[3:10],
    "rest": lambda x: x[10:],
    "even": lambda x: x[::2],
    "odd": lambda x: x[1::2],
    "crop": lambda x: x[1:3, 2:5] if x.ndim == 2 else x[1:2],
    "turned": lambda x: x.T if x.ndim == 2 else x[4:],
    "none": lambda x: x[:0],
}


def as_array(x: Any) -> Any:
    # torch frees the memory of an array that views a tensor in the same batch.
    return np.arange(5.0) if isinstance(x, torch.Tensor) else x


def as_tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(x) if isinstance(x, np.ndarray) else x


def read_only(x: Any) -> Any:
    view = as_array(x)[...]
    view.flags.writeable = False
    return view


KINDS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "array": as_array,
    "tensor": as_tensor,
    "read-only": read_only,
    "parameter": lambda x: torch.nn.Parameter(as_tensor(x), requires_grad=False),
    "own tensor": lambda x: as_tensor(x).as_subclass(OwnTensor),
    "series": lambda x: pd.Series(as_array(x).reshape(-1), copy=False),
    "frame": lambda x: pd.DataFrame(np.atleast_2d(as_array(x)), copy=False),
}
CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": lambda parts: dict(zip("abcd", parts, strict=False)),
    "ordered": lambda parts: collections.OrderedDict(zip("abcd", parts, strict=False)),
    "record": Record,
    "of atoms": lambda parts: [len(parts), "text"],
    "of names": lambda parts: {"count": len(parts)},
    "long list": lambda parts: [*range(20), *parts],
    "long tuple": lambda parts: (*map(str, range(20)), *parts),
    "long dict": lambda parts: dict(enumerate([*map(float, range(20)), *parts])),
    "set": lambda parts: {*range(20)},
}
# Recipes are lists of leaves and nodes. A node may contain any parts before it.
LEAVES = st.tuples(
    st.sampled_from([*SOURCES]), st.sampled_from([*VIEWS]), st.sampled_from([*KINDS])
)
NODES = st.tuples(
    st.sampled_from([*CONTAINERS]), st.lists(st.integers(0, 7), max_size=4)
)
RECIPES = st.lists(LEAVES | NODES, min_size=1, max_size=8)


def batch_of(recipe: list[Any]) -> list[Any]:
    """Return a list of parts. Containers among them may hold earlier parts."""
    sources = {name: make() for name, make in SOURCES.items()}
    parts: list[Any] = []
    for name, *rest in recipe:
        if name in SOURCES:
            view, kind = rest
            part = KINDS[kind](VIEWS[view](sources[name]))
        else:
            part = CONTAINERS[name]([parts[i % len(parts)] for i in rest[0] if parts])
        parts.append(part)
    return parts


def walk(part: Any) -> Iterator[Any]:
    """Yield a part and all parts inside it, containers before their contents."""
    yield part
    if isinstance(part, dict):
        part = [*part.values()]
    elif isinstance(part, Record):
        part = [part.data]
    if isinstance(part, list | tuple):
        for child in part:
            yield from walk(child)


def is_leaf(part: Any) -> bool:
    return isinstance(part, torch.Tensor | np.ndarray | pd.Series | pd.DataFrame)


def values_of(leaf: Any) -> bytes:
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().numpy()
    return np.asarray(leaf).tobytes()


def write(leaf: Any, value: float) -> None:
    if isinstance(leaf, pd.Series | pd.DataFrame):
        leaf.iloc[...] = value
    else:
        leaf[...] = value


def sharing_of(batch: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return everything that a program can observe about sharing in a batch.

    Returns:
        For each part, the index of the first part that is the same object; the values
        of each leaf; and, for each leaf, the values of all leaves after a write to it.
    """
    parts = [*walk(batch)]
    first: dict[int, int] = {}
    # Python decides which equal atoms are the same object.
    objects = [part for part in parts if is_leaf(part) or hasattr(part, "__iter__")]
    same = [first.setdefault(id(part), i) for i, part in enumerate(objects)]
    leaves = [part for part in parts if is_leaf(part)]
    before = [values_of(leaf) for leaf in leaves]
    after = []
    for number, leaf in enumerate(leaves):
        write(leaf, -1.0 - number)
        after.append([values_of(other) for other in leaves])
    return same, before, after


WINDOWS = ["window", "next window"]
EXAMPLES: dict[str, list[Any]] = {
    "windows of an array": [("array", view, "as it is") for view in WINDOWS],
    "windows of a tensor": [("tensor", view, "as it is") for view in WINDOWS],
    "windows of a tensor over an array": [("array", v, "tensor") for v in WINDOWS],
    "crops": [("matrix", "crop", "as it is"), ("matrix", "turned", "as it is")],
    "crops of a tensor": [
        ("table", "crop", "as it is"),
        ("table", "turned", "as it is"),
    ],
    "an array beside a tensor over it": [
        ("large array", "itself", "array"),
        ("large array", "itself", "tensor"),
        ("large array", "rest", "tensor"),
    ],
    "a tensor beside its array": [
        ("large tensor", "itself", "tensor"),
        ("large tensor", "itself", "array"),
        ("large tensor", "rest", "array"),
    ],
    "series": [("array", "window", "series"), ("array", "itself", "series")],
    "read-only windows": [("large array", view, "read-only") for view in VIEWS],
    "the same dict twice": [
        ("of names", []),
        ("dict", [0]),
        ("list", [0, 1, 1]),
    ],
    **{
        f"the same {name} with {leaf}": [
            ("tensor", "itself", leaf if leaf in KINDS else "tensor"),
            (name, [0] if leaf in KINDS else []),
            ("list", [1]),
            ("dict", [2, 1]),
            ("tuple", [2, 2, 3]),
        ]
        for name in ("long list", "long tuple", "long dict", "record", "ordered")
        for leaf in ("tensor", "array", "atoms")
    },
    "tensors of all kinds": [("large tensor", "rest", kind) for kind in KINDS],
    "empty ones": [
        ("tensor", "none", "tensor"),
        ("list", [0, 0]),
        ("table", "none", "tensor"),
    ],
}


@hypothesis.given(RECIPES)
@hypothesis.settings(max_examples=150, deadline=None)
def test_sharing_in_any_batch_matches_torch_queue(recipe):
    slot = Slot()  # Keeps the slot alive longer than its views.
    got = sharing_of(slot.send(batch_of(recipe)))
    assert got == sharing_of(through_torch(batch_of(recipe)))


def test_shared_container_of_tensors_is_walked_once(monkeypatch):
    seen: list[torch.Tensor] = []
    array_of = pickling.array_of

    def watched(tensor: torch.Tensor) -> Any:
        seen.append(tensor)
        return array_of(tensor)

    monkeypatch.setattr(pickling, "array_of", watched)
    shared = [torch.arange(3.0) for _ in range(100)]
    got = Slot().send([{"number": i, "shared": shared} for i in range(64)])
    assert len(seen) == len(shared)
    assert all(sample["shared"] is got[0]["shared"] for sample in got)


@pytest.mark.parametrize("with_tensor", [False, True], ids=["plain", "with tensors"])
def test_nested_shared_containers_are_walked_once(with_tensor):
    shared: Any = {"a": 1}
    for _ in range(30):  # There are 2**30 paths to the innermost container.
        shared = [shared, shared]
    got = Slot().send([torch.arange(3.0) if with_tensor else 1, shared])[1]
    for _ in range(30):
        assert got[0] is got[1]
        got = got[0]
    assert got == {"a": 1}


def test_tensor_and_its_array_arrive_separately():
    sent = torch.arange(5000.0)
    slot = Slot()
    tensor, array, view = slot.send([sent, sent.numpy(), sent[2:]])
    tensor.fill_(-1)
    assert view.eq(-1).all()
    assert array.tolist() == [*range(5000)]


class Kept:
    """Returns a tensor that it keeps and modifies."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(2)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        self.tensor[0] += 1
        return self.tensor


@pytest.mark.multiprocess
def test_batches_share_no_memory_with_their_worker():
    def found(loader_class: Any) -> Any:
        options = {"num_workers": 1, "multiprocessing_context": "fork"}
        batches = []
        for batch in loader_class(Kept(), batch_size=None, **options):
            batch[1] += 10
            batches.append(batch)
        return torch.stack(batches)

    assert found(TorchLoader).unique(dim=0).tolist() == [[4, 40]]
    assert found(DataLoader).tolist() == [[1, 10], [2, 10], [3, 10], [4, 10]]


class Made:
    """A collate function that returns the batch of an example."""

    def __call__(self, samples: list[str]) -> list[Any]:
        return batch_of(EXAMPLES[samples[0]])


@pytest.mark.multiprocess
def test_sharing_in_batches_of_workers_matches_torch():
    def found(loader_class: Any, **options: Any) -> dict[str, Any]:
        loader = loader_class(
            [*EXAMPLES], num_workers=1, multiprocessing_context="fork", **options
        )
        return dict(zip(EXAMPLES, map(sharing_of, loader), strict=True))

    want = found(TorchLoader, collate_fn=Made())
    assert found(DataLoader, collate_fn=Made()) == want


class Several:
    """A sample that a user-defined collation rule turns into several tensors."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data


def collate_several(samples: Any, *, collate_fn_map: Any = None) -> list[Any]:
    made = collate([s.data for s in samples], collate_fn_map=collate_fn_map)
    array = made.numpy()
    views = [made[0], array, array[1:], torch.from_numpy(array), made]
    return [made, *views]


@pytest.mark.multiprocess
def test_sharing_of_collation_rule_views_matches_torch(monkeypatch):
    monkeypatch.setitem(default_collate_fn_map, Several, collate_several)
    samples = [Several(torch.arange(5000.0) + i) for i in range(4)]

    def found(loader_class: Any) -> list[Any]:
        options = {"num_workers": 1, "multiprocessing_context": "fork"}
        return [*map(sharing_of, loader_class(samples, batch_size=2, **options))]

    assert found(DataLoader) == found(TorchLoader)
