"""Makes libraries that create torch's loaders create Gristmill's instead."""

from __future__ import annotations

import contextlib
import functools
import inspect
from types import ModuleType
from typing import Any, TypeVar

from gristmill._base.imports import when_imported
from gristmill._torch import private
from gristmill._torch.loader import DataLoader, check_options
from gristmill._torch.stateful import StatefulDataLoader

__all__ = ["install", "uninstall"]

# The replacement of the loader class that a module refers to, by the module.
# Accelerate imports the stateful one from torchdata at each use.
_REPLACEMENTS: dict[str, type[DataLoader[Any]]] = {
    "accelerate.data_loader": DataLoader,
    "transformers.trainer": DataLoader,
    "torchdata.stateful_dataloader": StatefulDataLoader,
}
# The attributes of torch's own loaders that replace Gristmill's arguments.
_DEFAULTS = {
    "max_restarts": 0,
    "reorder_window": None,
    "memory_limit": None,
    "overlap_epochs": False,
}
_T_co = TypeVar("_T_co", covariant=True)
# Closing it undoes `install`.
_undo_install = contextlib.ExitStack()


def install(*, everywhere: bool = False, **options: Any) -> None:
    """Make Accelerate and the Hugging Face Trainer create Gristmill's loaders.

    These libraries create torch's `DataLoader`, even from a Gristmill loader, and
    Accelerate also torchdata's `StatefulDataLoader`.  This function replaces these
    classes in the modules `accelerate.data_loader`, `transformers.trainer` and
    `torchdata.stateful_dataloader`, at once or when they are imported.  Other code that
    imports `StatefulDataLoader` from torchdata afterwards gets Gristmill's, too.  A
    second call replaces the arguments of the first one.

    Args:
        everywhere: Make torch's own class, `torch.utils.data.DataLoader`, and its
            subclasses use Gristmill's iterators.  This applies to the loaders of every
            library, including existing ones.
        **options: Keyword arguments for all replaced loaders with workers, such as
            ``max_restarts=1``.  Trainers pass only torch's arguments.
            ``overlap_epochs`` is not allowed: the draws of trainers' own samplers
            cannot be predicted.

    Raises:
        TypeError: An option is not one of Gristmill's own arguments, is not allowed, or
            has the wrong type.
        ValueError: An option is out of range.

    Example:
        >>> install(max_restarts=1)
        >>> uninstall()
    """
    allowed = [name for name in _DEFAULTS if name != "overlap_epochs"]
    for name in options:
        if name not in allowed:
            raise TypeError(
                f"install() got an unexpected option {name!r}; its options are"
                f" {', '.join(allowed)}. Pass other arguments to the trainer."
            )
    check_options(1, **options)
    uninstall()
    private.warn_if_unsupported()
    if private.DIFFERENCE is not None:
        return
    with_options = {
        cls: _with_options(cls, options) if options else cls
        for cls in _REPLACEMENTS.values()
    }
    for module_name, cls in _REPLACEMENTS.items():
        replace = functools.partial(_replace_class, with_options[cls])
        _undo_install.callback(when_imported(module_name, replace))
    if everywhere:
        names = ("_get_iterator", "set_epoch")
        attributes = {name: getattr(DataLoader, name) for name in names}
        attributes |= {**_DEFAULTS, **options}
        _undo_install.callback(private.set_loader_attributes(**attributes))


def uninstall() -> None:
    """Undo `install`, except for existing Gristmill loaders.

    Loaders of torch's own class use torch's iterators again.

    Example:
        >>> import torch
        >>> install(everywhere=True)
        >>> uninstall()
        >>> type(iter(torch.utils.data.DataLoader([1, 2]))).__module__
        'torch.utils.data.dataloader'
    """
    _undo_install.close()


def _with_options(loader_class: type[DataLoader[Any]], options: dict[str, Any]) -> Any:
    """Return a subclass with the same name that passes `options` if it has workers."""
    signature = inspect.signature(loader_class)

    class LoaderWithOptions(loader_class[_T_co]):  # type: ignore[misc, valid-type]
        @functools.wraps(loader_class.__init__)  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if signature.bind(*args, **kwargs).arguments.get("num_workers"):
                kwargs = {**options, **kwargs}
            super().__init__(*args, **kwargs)

        def __reduce_ex__(self, protocol: Any) -> Any:
            if type(self) is not LoaderWithOptions:
                return super().__reduce_ex__(protocol)
            # Other processes cannot import this class.
            return _new, (loader_class,), vars(self)

    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(LoaderWithOptions, name, getattr(loader_class, name))
    return LoaderWithOptions


def _new(loader_class: type[DataLoader[Any]]) -> DataLoader[Any]:
    return loader_class.__new__(loader_class)


def _replace_class(replacement: Any, module: ModuleType) -> None:
    """Replace a loader class in a module until `uninstall`.

    `uninstall` does not restore it if other code has replaced it since.
    """
    name = replacement.__name__
    original = getattr(module, name)
    setattr(module, name, replacement)

    def restore() -> None:
        if getattr(module, name, None) is replacement:
            setattr(module, name, original)

    _undo_install.callback(restore)
