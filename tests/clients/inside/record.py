"""Runs a program of a client and writes what it yields, in the client's environment.

    python record.py FOLDER PEER LOADER

FOLDER has the module `program`, whose function `main` yields names and values: batches,
losses, weights.  The file "values.txt" gets a line for each tensor, array, number or
text in them.  The file "facts.json" gets the number of batches that the loaders under
test gave, or null for Grain.
"""

import dataclasses
import hashlib
import importlib
import json
import pathlib
import sys
from collections.abc import Mapping

# Elements of an array that are shown. All of them are compared, by their hash.
SHOWN = 4


def lines(name, value):
    """Yield a line for each leaf of a value.

    Raises:
        TypeError: The program must convert the value to another type.
    """
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield f"{name}: {kind} {value!r}"
    elif isinstance(value, Mapping):
        yield f"{name}: {kind} of {[*value]}"
        for key in value:
            yield from lines(f"{name}[{key!r}]", value[key])
    elif isinstance(value, (list, tuple)):
        yield f"{name}: {kind} of {len(value)}"
        for index, part in enumerate(value):
            yield from lines(f"{name}[{index}]", part)
    elif dataclasses.is_dataclass(value):
        yield f"{name}: {kind}"
        for field in dataclasses.fields(value):
            yield from lines(f"{name}.{field.name}", getattr(value, field.name))
    else:
        yield f"{name}: {kind} {array_text(value, name)}"


def array_text(value, name):
    """Return the dtype, the shape, some elements and the hash of an array or tensor."""
    import numpy as np

    dtype = getattr(value, "dtype", None)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(dtype) == "torch.bfloat16":
            value = value.view(importlib.import_module("torch").uint16)
    if not hasattr(value, "__array__"):
        raise TypeError(
            f"{name} must be made of tensors, arrays, numbers, texts, dicts, lists and"
            f" tuples, found {type(value)}."
        )
    array = np.asarray(value)
    shown = array.reshape(-1)[:SHOWN].tolist()
    content = (
        array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
    )
    digest = hashlib.sha256(content).hexdigest()[:16]
    return f"{dtype} {array.shape} {shown} {digest}"


class Batches:
    """Counts the batches of torch's iterators, or of ours."""

    def __init__(self, loader):
        self.count = 0
        if loader == "gristmill":
            cls = importlib.import_module("gristmill._torch.iterators").LoaderIterator
        else:
            module = importlib.import_module("torch.utils.data.dataloader")
            cls = module._BaseDataLoaderIter
        step = cls.__next__

        def stepped(iterator):
            batch = step(iterator)
            self.count += 1
            return batch

        cls.__next__ = stepped


def check_modules(peer, loader):
    """Raise an error if the program used the other loader.

    Raises:
        RuntimeError: The program imported a module of the other loader.
    """
    for name, module in [*sys.modules.items()]:
        path = getattr(module, "__file__", None) or ""
        if loader == "peer":
            wrong = name == "gristmill"
        else:
            wrong = peer == "grain" and "/site-packages/grain/" in path
        if wrong:
            raise RuntimeError(
                f"The program with the loader {loader!r} imported {name}."
            )


def main(folder, peer, loader):
    here = str(pathlib.Path(__file__).parent)
    # Torch removes the operators when this object is deleted.
    _operators = importlib.import_module("torchvision_operators").declare()
    sys.path[:] = [folder, *(path for path in sys.path if path != here)]
    batches = Batches(loader) if peer == "torch" else None
    with open(pathlib.Path(folder, "values.txt"), "w") as file:
        for name, value in importlib.import_module("program").main():
            file.writelines(f"{line}\n" for line in lines(name, value))
    check_modules(peer, loader)
    facts = {"batches": batches.count if batches else None}
    pathlib.Path(folder, "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
