"""Makes programs that build torch's loaders use Gristmill's."""

from __future__ import annotations

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
    _check(options)
    uninstall()
    private.warn_of_unknown()
    if private.UNKNOWN is not None:
        return
    global _rebound
    _rebound = _Rebound(options)
    if everywhere:
        private.lend(_get_iterator=DataLoader._get_iterator, **_DEFAULTS | options)


def uninstall() -> None:
    """Undo `install`; loaders that it let be built stay what they are.

    Those of torch's own class make torch's iterators again.
    """
    global _rebound
    if _rebound is not None:
        _rebound.undo()
        _rebound = None
    private.take_back()


def _check(options: dict[str, Any]) -> None:
    allowed = [name for name in _DEFAULTS if name != "overlap_epochs"]
    for name in options:
        if name not in allowed:
            raise TypeError(
                f"install() got {name!r}. It takes what trainers cannot pass on:"
                f" {', '.join(allowed)}. Give the trainer the others."
            )
    check_options(1, **options)


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


class _Rebound:
    """The names of loaders in the modules that build them, which mean ours.

    Args:
        options: Of all loaders with workers that are built so.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._built = {
            ours: _with_options(ours, options) if options else ours
            for ours in _BUILDERS.values()
        }
        # The modules that were rebound, and what they held.
        self._held: list[tuple[ModuleType, Any]] = []
        self._cancel = [when_imported(name, self._rebind) for name in _BUILDERS]

    def _rebind(self, module: ModuleType) -> None:
        """Let a module build ours."""
        ours = _BUILDERS[module.__name__]
        self._held.append((module, getattr(module, ours.__name__)))
        setattr(module, ours.__name__, self._built[ours])

    def undo(self) -> None:
        """Let the modules build what they held before, unless they hold another now."""
        for cancel in self._cancel:
            cancel()
        for module, held in self._held:
            ours = _BUILDERS[module.__name__]
            if getattr(module, ours.__name__, None) is self._built[ours]:
                setattr(module, ours.__name__, held)


_rebound: _Rebound | None = None
