"""The private parts of torch that Gristmill uses, which any version may change.

No other file uses private parts.  Importing this file checks them.  If one is not as in
torch 2.6 to 2.15, `DIFFERENCE` describes the first such part, and loaders use torch's
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

SUPPORTED_VERSIONS = "torch 2.6 to 2.15"
_LOADING = "utils.data.dataloader."
_COLLATE = "utils.data._utils.collate."
_WORKER = "utils.data._utils.worker."

# The parts in use, by name.  For a function: the number of positional arguments in
# calls, including `self`, and the names of keyword arguments.  None for a part that is
# only read or set, or has no signature.
_USED_PARTS: dict[str, tuple[int, tuple[str, ...]] | None] = {
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
    "UntypedStorage._cdata": None,
}


class Absent:
    """The value of a part that this version of torch does not have."""


def _use_part(path: str, arguments: int | None = None, *names: str) -> Any:
    """Return a part of torch, and add it to `_USED_PARTS`.

    Args:
        path: Its name, without ``torch.``.
        arguments: See `_USED_PARTS`; the positional arguments in calls.
        names: The keyword arguments in calls.
    """
    _USED_PARTS[path] = None if arguments is None else (arguments, names)
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
BaseIterator = _use_part(_LOADING + "_BaseDataLoaderIter")
SingleProcessIterator = _use_part(_LOADING + "_SingleProcessDataLoaderIter")
MultiProcessIterator = _use_part(_LOADING + "_MultiProcessingDataLoaderIter")
DatasetKind = _use_part(_LOADING + "_DatasetKind")
MapFetcher = _use_part("utils.data._utils.fetch._MapDatasetFetcher")
# The sampler of iterable datasets; it yields None forever.
EndlessSampler = _use_part(_LOADING + "_InfiniteConstantSampler")
init_sharding_worker = _use_part(_LOADING + "_sharding_worker_init_fn", 4)
# The classes of datapipes, which a version of torch without datapipes lacks.
IterDataPipe: Any = getattr(torch.utils.data, "IterDataPipe", Absent)
DATAPIPES = IterDataPipe, getattr(torch.utils.data, "MapDataPipe", Absent)
# A profiler is running if either of these two is true.
profiler: Any = torch.autograd.profiler
profiler_enabled = _use_part("autograd._profiler_enabled")
pin_memory = _use_part("utils.data._utils.pin_memory.pin_memory", 2)
# Workers.
generate_state = _use_part(_WORKER + "_generate_state", 2)
set_thread_name = _use_part("multiprocessing._set_thread_name", 1)
if not TYPE_CHECKING:
    ExceptionWrapper = _use_part("_utils.ExceptionWrapper", 0, "where")
# Batches.
collate = _use_part(_COLLATE + "collate", 1, "collate_fn_map")
collate_tensor_fn = _use_part(_COLLATE + "collate_tensor_fn", 1, "collate_fn_map")
collate_float_fn = _use_part(_COLLATE + "collate_float_fn", 1, "collate_fn_map")
collate_int_fn = _use_part(_COLLATE + "collate_int_fn", 1, "collate_fn_map")
warn_if_has_hooks = _use_part("utils.hooks.warn_if_has_hooks", 1)
StorageWeakRef = _use_part("multiprocessing.reductions.StorageWeakRef", 1)
storage_of_weak_ref = _use_part("UntypedStorage._new_with_weak_ptr")
neg_view = _use_part("_neg_view")
# The plain function, whose first argument is the class.
new_shared: Any = getattr(
    _use_part("UntypedStorage._new_shared", 1, "device"), "__func__", Absent
)

# Attributes of loaders, of their iterators and of fetchers of iterable datasets.
_LOADER_ATTRIBUTES = ("_dataset_kind", "_iterator")
_ITERATOR_ATTRIBUTES = (
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
_FETCHER_ATTRIBUTES = ("dataset", "dataset_iter", "ended", "fetch")


def find_difference() -> str | None:
    """Describe the first part that is not as in the supported versions, or None."""
    for path, arguments in _USED_PARTS.items():
        part = _find(path)
        if part is Absent:
            return f"torch.{path} does not exist"
        if arguments is None:
            continue
        count, names = arguments
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
    for owner, attributes in (
        (loader, _LOADER_ATTRIBUTES),
        (iterator, _ITERATOR_ATTRIBUTES),
        (fetcher, _FETCHER_ATTRIBUTES),
    ):
        for attribute in attributes:
            if not hasattr(owner, attribute):
                return f"a {type(owner).__name__} has no {attribute}"
    return None


DIFFERENCE = find_difference()


@functools.cache
def warn_if_unsupported() -> None:
    """Warn once, at the caller's caller, if loaders use torch's own iterators."""
    if DIFFERENCE is None:
        return
    warnings.warn(
        f"{_version_note(DIFFERENCE)} Loaders use torch's own iterators: max_restarts,"
        " reorder_window, memory_limit and overlap_epochs have no effect, and random"
        " steps of Gristmill's datasets draw the same numbers in each epoch. Install a"
        " supported version of torch.",
        stacklevel=3,
    )


def require_supported() -> None:
    """Check that Gristmill supports this version of torch.

    Raises:
        RuntimeError: It does not, so loaders use torch's own iterators.
    """
    if DIFFERENCE is not None:
        raise RuntimeError(
            f"{_version_note(DIFFERENCE)} Install a supported version of torch, or use"
            " torchdata's StatefulDataLoader."
        )


def _version_note(difference: str) -> str:
    return (
        f"Gristmill supports {SUPPORTED_VERSIONS}, but in torch"
        f" {torch.__version__} {difference}."
    )


def needs_torch_iterator(loader: Any) -> bool:
    """Return whether a loader has to use torch's own iterator.

    This is the case if torch differs from the supported versions, or if the loader's
    `multiprocessing_context` does not start processes, but threads for example.
    """
    if DIFFERENCE is not None:
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
    names = [name for name, part in vars(cls).items() if inspect.isfunction(part)]
    return not is_own(cls, *names)


def is_own(cls: type, *names: str) -> bool:
    """Return whether functions of a class are those of its definition.

    Returns False if a function of a torch class was replaced or added.  Returns True
    for all classes outside torch.
    """
    module = cls.__module__
    if not module.startswith("torch."):
        return True
    attributes = vars(cls)
    for name in names:
        # Compare modules, not names: `functools.update_wrapper` copies names.
        if name in attributes:
            function_globals = getattr(attributes[name], "__globals__", {})
            if function_globals.get("__name__") != module:
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


def set_loader_attributes(**attributes: Any) -> Callable[[], None]:
    """Set attributes of torch's loader class, which its subclasses inherit.

    Returns:
        A function that restores the attributes, except those that other code has
        replaced since.
    """
    originals = {name: vars(TorchLoader).get(name, Absent) for name in attributes}
    for name, value in attributes.items():
        setattr(TorchLoader, name, value)

    def restore() -> None:
        for name, value in attributes.items():
            if vars(TorchLoader).get(name) is not value:
                continue
            if originals[name] is Absent:
                delattr(TorchLoader, name)
            else:
                setattr(TorchLoader, name, originals[name])

    return restore


def collation() -> dict[Any, Callable[..., Any]]:
    """Return the functions of ``default_collate``, by type; torch's own dict."""
    rules: dict[Any, Callable[..., Any]]
    rules = torch.utils.data._utils.collate.default_collate_fn_map
    return rules


def set_worker_info(**fields: Any) -> None:
    """Set the result of ``torch.utils.data.get_worker_info`` in this process."""
    worker: Any = torch.utils.data._utils.worker
    worker._worker_info = worker.WorkerInfo(**fields)


def set_worker_info_object(info: Any) -> None:
    """Set the result of ``get_worker_info`` to one that it has returned before."""
    torch.utils.data._utils.worker._worker_info = info


def storage_address(storage: torch.UntypedStorage) -> int:
    """Return the address of a storage, which differs from those of other storages."""
    address: int = storage._cdata
    return address


def set_new_shared(function: Callable[..., Any]) -> None:
    """Replace torch's function that makes storages in shared memory."""
    torch.UntypedStorage._new_shared = classmethod(function)
