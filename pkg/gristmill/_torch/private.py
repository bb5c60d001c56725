"""The private parts of torch that Gristmill uses, which any version may change.

No other file uses private parts.  Importing this file checks them.  If one differs from
that of torch 2.6 to 2.15, `UNKNOWN` describes the difference, and loaders use torch's
own iterators.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import torch
import torch.multiprocessing
import torch.utils.data

if TYPE_CHECKING:
    from torch._utils import ExceptionWrapper as ExceptionWrapper

KNOWN = "torch 2.6 to 2.15"
_LOADING = "utils.data.dataloader."
_COLLATE = "utils.data._utils.collate."
_WORKER = "utils.data._utils.worker."

# The parts in use, by name.  For a function: the number of positional arguments in
# calls, including `self`, and the names of keyword arguments.  None for a part that is
# only read or set, or has no signature.
_USED: dict[str, tuple[int, tuple[str, ...]] | None] = {
    # Methods that are called or replaced.
    _LOADING + "DataLoader._get_iterator": (1, ()),
    _LOADING + "DataLoader.check_worker_number_rationality": (1, ()),
    _LOADING + "_BaseDataLoaderIter.__init__": (2, ()),
    _LOADING + "_BaseDataLoaderIter.__next__": (1, ()),
    _LOADING + "_BaseDataLoaderIter._next_data": (1, ()),
    _LOADING + "_BaseDataLoaderIter._next_index": (1, ()),
    _LOADING + "_BaseDataLoaderIter._reset": (3, ()),
    _LOADING + "_SingleProcessDataLoaderIter.__init__": (2, ()),
    _LOADING + "_MultiProcessingDataLoaderIter._shutdown_workers": (1, ()),
    _LOADING + "_DatasetKind.Iterable": None,
    _LOADING + "_DatasetKind.Map": None,
    _LOADING + "_DatasetKind.create_fetcher": (5, ()),
    _COLLATE + "default_collate_fn_map": None,
    _WORKER + "_worker_info": None,
    _WORKER + "WorkerInfo": (0, ("id", "num_workers", "seed", "dataset")),
    "autograd.profiler._is_profiler_enabled": None,
    "_utils.ExceptionWrapper.reraise": (1, ()),
    "multiprocessing.reductions.StorageWeakRef.expired": (1, ()),
}


class Absent:
    """The value of a part that this version of torch does not have."""


def _part(path: str, arguments: int | None = None, *names: str) -> Any:
    """Add a part to `_USED`, and return it; `path` is its name after ``torch.``."""
    _USED[path] = None if arguments is None else (arguments, names)
    return _find(path)


def _find(path: str) -> Any:
    """Return a part of torch, or `Absent` if it does not exist."""
    try:
        return functools.reduce(getattr, path.split("."), torch)
    except AttributeError:
        return Absent


# Iterators.
TorchLoader = torch.utils.data.DataLoader
get_iterator: Any = getattr(TorchLoader, "_get_iterator", Absent)
BaseIterator = _part(_LOADING + "_BaseDataLoaderIter")
SingleProcessIterator = _part(_LOADING + "_SingleProcessDataLoaderIter")
MultiProcessIterator = _part(_LOADING + "_MultiProcessingDataLoaderIter")
DatasetKind = _part(_LOADING + "_DatasetKind")
MapFetcher = _part("utils.data._utils.fetch._MapDatasetFetcher")
# The sampler of iterable datasets; it yields None forever.
EndlessSampler = _part(_LOADING + "_InfiniteConstantSampler")
init_sharding_worker = _part(_LOADING + "_sharding_worker_init_fn", 4)
# A profiler is running if either of these two is true.
profiler: Any = torch.autograd.profiler
profiler_enabled = _part("autograd._profiler_enabled")
pin_memory = _part("utils.data._utils.pin_memory.pin_memory", 2)
# Workers.
generate_state = _part(_WORKER + "_generate_state", 2)
set_thread_name = _part("multiprocessing._set_thread_name", 1)
if not TYPE_CHECKING:
    ExceptionWrapper = _part("_utils.ExceptionWrapper", 0, "where")
# Batches.
collate = _part(_COLLATE + "collate", 1, "collate_fn_map")
collate_tensor_fn = _part(_COLLATE + "collate_tensor_fn", 1, "collate_fn_map")
collate_float_fn = _part(_COLLATE + "collate_float_fn", 1, "collate_fn_map")
collate_int_fn = _part(_COLLATE + "collate_int_fn", 1, "collate_fn_map")
StorageWeakRef = _part("multiprocessing.reductions.StorageWeakRef", 1)
storage_of_weak_ref = _part("UntypedStorage._new_with_weak_ptr")
neg_view = _part("_neg_view")
# The plain function, whose first argument is the class.
new_shared: Any = getattr(
    _part("UntypedStorage._new_shared", 1, "device"), "__func__", Absent
)

# Attributes of loaders, of their iterators and of fetchers of iterable datasets.
_OF_LOADERS = ("_dataset_kind", "_iterator")
_OF_ITERATORS = (
    "_IterableDataset_len_called",
    "_auto_collation",
    "_base_seed",
    "_collate_fn",
    "_dataset",
    "_dataset_fetcher",
    "_dataset_kind",
    "_drop_last",
    "_index_sampler",
    "_num_workers",
    "_num_yielded",
    "_persistent_workers",
    "_pin_memory",
    "_pin_memory_device",
    "_profile_name",
    "_rank",
    "_sampler_iter",
    "_shared_seed",
    "_timeout",
    "_world_size",
)
_OF_FETCHERS = ("dataset", "dataset_iter", "ended", "fetch")


def unknown() -> str | None:
    """Describe the first part that differs from those of `KNOWN`; None if none does."""
    for path, call in _USED.items():
        part = _find(path)
        if part is Absent:
            return f"torch.{path} does not exist"
        if call is None:
            continue
        count, names = call
        try:
            inspect.signature(part).bind(*[None] * count, **dict.fromkeys(names))
        except (TypeError, ValueError):
            return f"torch.{path} takes other arguments"
    try:
        # Use a separate generator and the CPU: the program's generator must not
        # advance, and its default device may not exist.
        with torch.device("cpu"):
            loader = TorchLoader([0], generator=torch.Generator())
            iterator = _find(_LOADING + "_SingleProcessDataLoaderIter")(loader)
            kinds = _find(_LOADING + "_DatasetKind")
            fetcher = kinds.create_fetcher(kinds.Iterable, [0], False, None, False)
    except Exception as error:
        return f"torch's iterator fails: {error!r}"
    for thing, names in (
        (loader, _OF_LOADERS),
        (iterator, _OF_ITERATORS),
        (fetcher, _OF_FETCHERS),
    ):
        for name in names:
            if not hasattr(thing, name):
                return f"a {type(thing).__name__} has no {name}"
    return None


UNKNOWN = unknown()


@functools.cache
def warn_of_unknown() -> None:
    """Warn once, at the caller's caller, if loaders use torch's own iterators."""
    if UNKNOWN is None:
        return
    warnings.warn(
        f"{_version_note(UNKNOWN)} Loaders use torch's own iterators: max_restarts,"
        " reorder_window, memory_limit and overlap_epochs have no effect, and random"
        " steps of Gristmill's datasets draw the same numbers in each epoch. Install a"
        " supported version of torch.",
        stacklevel=3,
    )


def require() -> None:
    """Check that Gristmill supports this version of torch.

    Raises:
        RuntimeError: It does not, so loaders use torch's own iterators.
    """
    if UNKNOWN is not None:
        raise RuntimeError(
            f"{_version_note(UNKNOWN)} Install a supported version of torch, or use"
            " torchdata's StatefulDataLoader."
        )


def _version_note(found: str) -> str:
    return f"Gristmill supports {KNOWN}, but in torch {torch.__version__} {found}."


def needs_torchs_iterator(loader: Any) -> bool:
    """Return whether a loader has to use torch's own iterator.

    This is the case if torch differs from the versions in `KNOWN`, or if the loader's
    `multiprocessing_context` does not start processes, but threads for example.
    """
    if UNKNOWN is not None:
        return True
    process = getattr(loader.multiprocessing_context, "Process", BaseProcess)
    return not (isinstance(process, type) and issubclass(process, BaseProcess))


def is_base_own() -> bool:
    """Return whether the functions of torch's base iterator are torch's own."""
    return is_own(BaseIterator, "__init__", "__next__", "_next_index", "_reset")


def is_iterator_replaced(loader: Any) -> bool:
    """Return whether another library replaced functions of torch's iterator class.

    Functions of its base class do not count: Gristmill's iterators call them, too.
    """
    cls = MultiProcessIterator if loader.num_workers > 0 else SingleProcessIterator
    functions = [name for name, part in vars(cls).items() if inspect.isfunction(part)]
    return not is_own(cls, *functions)


def is_own(cls: type, *names: str) -> bool:
    """Return whether functions of a class are those of its definition.

    Returns False if a function of a torch class was replaced or added.  Returns True
    for all classes outside torch.
    """
    module = cls.__module__
    if not module.startswith("torch."):
        return True
    parts = vars(cls)
    for name in names:
        # Compare modules, not names: `functools.update_wrapper` copies names.
        if name in parts:
            home = getattr(parts[name], "__globals__", {}).get("__name__")
            if home != module:
                return False
    return True


def is_unread(iteration: Any, sampler: Any) -> bool:
    """Return whether `iteration` is ``iter(sampler)`` and nothing was drawn from it.

    Args:
        iteration: An iterator.
        sampler: A torch sampler whose own ``__iter__`` is a generator function.
    """
    if not is_own(type(sampler), "__iter__") or not inspect.isgenerator(iteration):
        return False
    return (
        inspect.getgeneratorstate(iteration) == inspect.GEN_CREATED
        and iteration.gi_code is type(sampler).__iter__.__code__
        and inspect.getgeneratorlocals(iteration)["self"] is sampler
    )


def set_loader_attributes(**parts: Any) -> Callable[[], None]:
    """Set attributes of torch's loader class, which its subclasses inherit.

    Returns:
        A function that restores the attributes, except those that other code has
        replaced since.
    """
    before = {name: vars(TorchLoader).get(name, Absent) for name in parts}
    for name, part in parts.items():
        setattr(TorchLoader, name, part)

    def restore() -> None:
        for name, part in parts.items():
            if vars(TorchLoader).get(name) is not part:
                continue
            if before[name] is Absent:
                delattr(TorchLoader, name)
            else:
                setattr(TorchLoader, name, before[name])

    return restore


def collation() -> dict[Any, Callable[..., Any]]:
    """Return the functions of ``default_collate``, by type."""
    found: dict[Any, Callable[..., Any]]
    found = torch.utils.data._utils.collate.default_collate_fn_map
    return found


def set_worker_info(**fields: Any) -> None:
    """Set the result of ``torch.utils.data.get_worker_info`` in this process."""
    worker: Any = torch.utils.data._utils.worker
    worker._worker_info = worker.WorkerInfo(**fields)


def set_new_shared(function: Callable[..., Any]) -> None:
    """Replace torch's function that makes storages in shared memory."""
    torch.UntypedStorage._new_shared = classmethod(function)
