"""Makes programs that create torch's loaders use Gristmill's."""

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

# Modules that refer to a loader class by its name, and the replacement.  Accelerate
# reads the stateful loader from torchdata each time.
_BUILDERS: dict[str, type[DataLoader[Any]]] = {
    "accelerate.data_loader": DataLoader,
    "transformers.trainer": DataLoader,
    "torchdata.stateful_dataloader": StatefulDataLoader,
}
# Attributes that torch's own loaders get in place of our arguments.
_DEFAULTS = {
    "max_restarts": 0,
    "reorder_window": None,
    "memory_limit": None,
    "overlap_epochs": False,
}
_T_co = TypeVar("_T_co", covariant=True)
# Undoes `install`.
_installed = contextlib.ExitStack()


def install(*, everywhere: bool = False, **options: Any) -> None:
    """Make Accelerate and the Hugging Face Trainer create Gristmill's loaders.

    They create torch's `DataLoader` by its name in their own modules, even from one of
    Gristmill's loaders.  Accelerate also creates torchdata's `StatefulDataLoader`;
    later imports of that name get Gristmill's class.  If one of these modules is not
    imported yet, it is changed when it is imported.  A second call replaces the options
    of the first.

    Args:
        everywhere: Whether torch's own class, `torch.utils.data.DataLoader`, and its
            subclasses also iterate like Gristmill's.  This includes loaders of any
            library, imported or created before or after this call.
        **options: Keyword arguments for all loaders with workers that are created this
            way, such as ``max_restarts=1``, since trainers only pass torch's arguments.
            ``overlap_epochs`` is not allowed, because the draws of trainers' own
            samplers cannot be predicted.

    Raises:
        TypeError: An option is unknown, is an argument of torch's loader, or has the
            wrong type.
        ValueError: An option is out of range.

    Example:
        >>> install(max_restarts=1)
        >>> uninstall()
    """
    allowed = [name for name in _DEFAULTS if name != "overlap_epochs"]
    for name in options:
        if name not in allowed:
            raise TypeError(
                f"install() got {name!r}. It takes what trainers cannot pass on:"
                f" {', '.join(allowed)}. Give the trainer the others."
            )
    check_options(1, **options)
    uninstall()
    private.warn_of_unknown()
    if private.UNKNOWN is not None:
        return
    built = {
        ours: _with_options(ours, options) if options else ours
        for ours in _BUILDERS.values()
    }
    for name, ours in _BUILDERS.items():
        rebind = functools.partial(_rebind, built[ours])
        _installed.callback(when_imported(name, rebind))
    if everywhere:
        names = ("_get_iterator", "set_epoch")
        parts = {name: getattr(DataLoader, name) for name in names}
        parts |= {**_DEFAULTS, **options}
        _installed.callback(private.lend(**parts))


def uninstall() -> None:
    """Undo `install`. Loaders that were created in the meantime do not change.

    Loaders of torch's own class create torch's iterators again.

    Example:
        >>> import torch
        >>> install(everywhere=True)
        >>> uninstall()
        >>> type(iter(torch.utils.data.DataLoader([1, 2]))).__module__
        'torch.utils.data.dataloader'
    """
    _installed.close()


def _with_options(loader_class: type[DataLoader[Any]], options: dict[str, Any]) -> Any:
    """Return a loader class of the same name that passes `options` to its loaders."""
    signature = inspect.signature(loader_class)

    class Built(loader_class[_T_co]):  # type: ignore[misc, valid-type]
        @functools.wraps(loader_class.__init__)  # type: ignore[misc]
        def __init__(self, *args: Any, **arguments: Any) -> None:
            given = signature.bind(*args, **arguments).arguments
            if given.get("num_workers"):
                arguments = {**options, **arguments}
            super().__init__(*args, **arguments)

        def __reduce_ex__(self, protocol: Any) -> Any:
            if type(self) is not Built:
                return super().__reduce_ex__(protocol)
            # Other processes do not have this class.
            return _new, (loader_class,), vars(self)

    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(Built, name, getattr(loader_class, name))
    return Built


def _new(loader_class: type[DataLoader[Any]]) -> DataLoader[Any]:
    return loader_class.__new__(loader_class)


def _rebind(built: Any, module: ModuleType) -> None:
    """Replace a loader class in a module, until `uninstall` or a later replacement."""
    name = built.__name__
    held = getattr(module, name)
    setattr(module, name, built)

    def undo() -> None:
        if getattr(module, name, None) is built:
            setattr(module, name, held)

    _installed.callback(undo)
