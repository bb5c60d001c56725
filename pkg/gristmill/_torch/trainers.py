"""Makes programs that build torch's loaders use Gristmill's."""

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

# Modules that hold a loader by its name, and what that is to mean.  Accelerate looks
# the stateful one up in torchdata each time.
_BUILDERS: dict[str, type[DataLoader[Any]]] = {
    "accelerate.data_loader": DataLoader,
    "transformers.trainer": DataLoader,
    "torchdata.stateful_dataloader": StatefulDataLoader,
}
# What torch's own loaders have in the place of our arguments.
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
    """Let Accelerate and the Hugging Face Trainer build Gristmill's loaders.

    They build torch's `DataLoader` by its name in their own modules, also from a loader
    that is ours, and Accelerate torchdata's `StatefulDataLoader`, whose name is ours
    for whoever imports it after this.  Where one of these modules is not imported yet,
    it is seen to when it is.  A second call replaces what the first one said.

    Args:
        everywhere: Let torch's own class, `torch.utils.data.DataLoader`, and what is
            derived from it iterate as ours do: the loaders of any library, imported or
            made before this or after.
        **options: Keyword arguments of all loaders with workers that are built so, as
            ``max_restarts=1``: trainers know only torch's arguments.  Not
            ``overlap_epochs``: what trainers' own samplers draw cannot be foreseen.

    Raises:
        TypeError: It is not one of those, or torch's loader has it, too, or its type is
            wrong.
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
    """Undo `install`; loaders that it let be built stay what they are.

    Those of torch's own class make torch's iterators again.

    Example:
        >>> import torch
        >>> install(everywhere=True)
        >>> uninstall()
        >>> type(iter(torch.utils.data.DataLoader([1, 2]))).__module__
        'torch.utils.data.dataloader'
    """
    _installed.close()


def _with_options(loader_class: type[DataLoader[Any]], options: dict[str, Any]) -> Any:
    """A loader class of the same name, whose loaders with workers have `options`."""
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
    """Let a module build ours; what undoes it leaves alone what it holds by then."""
    name = built.__name__
    held = getattr(module, name)
    setattr(module, name, built)

    def undo() -> None:
        if getattr(module, name, None) is built:
            setattr(module, name, held)

    _installed.callback(undo)
