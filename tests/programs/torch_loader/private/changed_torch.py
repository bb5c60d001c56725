"""Imports Gristmill's torch modules in forks of this process that change torch first.

Each argument is a change: names of parts to remove, without ``torch.`` and with commas
between them, "all parts", or a number of type variables of torch's classes.
"""

import functools
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
import typing
import warnings

import torch.utils.data

import gristmill._host
import gristmill._torch
import gristmill.torch  # The forks import only what depends on torch again.


def uses_torch(name):
    return "torch" in name or hasattr(importlib.import_module(name), "torch")


MODULES = ["gristmill.torch"]
for package in (gristmill._torch, gristmill._host):
    found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    names = [module.name for module in found]
    MODULES += [name for name in names if uses_torch(name)]


class Missing:
    """An attribute of a class that does not exist, even if a base class has it."""

    def __get__(self, instance, owner):
        raise AttributeError


def remove(path):
    *owners, name = path.split(".")
    try:
        owner = functools.reduce(getattr, owners, torch)
    except AttributeError:
        return  # It was removed with its owner.
    if isinstance(owner, type):
        setattr(owner, name, Missing())
    elif inspect.ismodule(getattr(owner, name)):
        sys.modules[f"torch.{path}"] = None
        delattr(owner, name)
    else:
        delattr(owner, name)


def hide_all_parts():
    """Make `gristmill._torch.private` find none of the parts."""
    reduce = functools.reduce

    def hiding(function, items, *first):
        if first == (torch,):
            raise AttributeError
        return reduce(function, items, *first)

    functools.reduce = hiding


def set_type_variables(count):
    variables = tuple(typing.TypeVar(f"T{number}") for number in range(count))
    data = torch.utils.data
    for cls in (data.DataLoader, data.Dataset, data.IterableDataset, data.Sampler):
        cls.__parameters__ = variables
    data.DistributedSampler.__parameters__ = variables
    for clear in typing._cleanups:  # Earlier results of ``DataLoader[T]``.
        clear()
    for arguments in (int, (int, int)):
        try:
            data.DataLoader[arguments]
        except TypeError:
            assert count != (1 if arguments is int else 2)
        else:
            assert count == (1 if arguments is int else 2)


def import_again():
    for name in reversed(MODULES):  # A package after its modules.
        if sys.modules.pop(name, None) is not None:
            package, _, attribute = name.rpartition(".")
            delattr(sys.modules[package], attribute)
    for name in MODULES:
        importlib.import_module(name)


def check_loaders():
    ours = gristmill.torch
    assert gristmill._torch.private.DIFFERENCE is None
    for cls, workers in ((ours.DataLoader, 1), (ours.StatefulDataLoader, 0)):
        assert typing.get_origin(cls[int, list[int]]) is cls

        class Sums(cls[int]):
            def sums(self):
                return [batch.sum().item() for batch in self]

        assert issubclass(Sums, torch.utils.data.DataLoader)
        assert Sums(range(3), 2, num_workers=workers).sums() == [1, 2]
    assert ours.WithMask("a")[1] == ("a", False)
    assert [*ours.DistributedSampler(range(4), 2, 1, shuffle=False)] == [1, 3]
    elements = ours.AsIterable([torch.tensor(7)])
    assert [batch.item() for batch in ours.DataLoader(elements, None)] == [7]


def try_change(change):
    warnings.simplefilter("error")
    if change.isdecimal():
        set_type_variables(int(change))
    elif change == "all parts":
        hide_all_parts()
    else:
        for part in change.split(","):
            remove(part)
    import_again()
    if change.isdecimal() or change.endswith("DataPipe"):
        check_loaders()
    elif change == "all parts":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = gristmill.torch.DataLoader(range(3), 2)
        assert [batch.tolist() for batch in loader] == [[0, 1], [2]]
        assert type(iter(loader)).__module__.startswith("torch.")
    else:
        difference = gristmill._torch.private.DIFFERENCE
        assert any(part in difference for part in change.split(","))


for change in sys.argv[1:]:
    child = os.fork()
    if child:
        if status := os.waitpid(child, 0)[1]:
            print(f"With {change}: wait status {status}", file=sys.stderr)
        continue
    try:
        try_change(change)
    except BaseException:
        print(f"With {change}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    os._exit(0)
