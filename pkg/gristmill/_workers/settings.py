"""Settings of libraries that workers copy from a main program that is not run again.

These are settings that change the results of code, or whether it fails.  A worker does
not import a library just to set them, but sets them when the library is imported.  All
other settings are left to ``worker_init_fn``.

`read_settings` runs in the user's process, in the thread that starts the workers.
`adopt` runs in a zygote, from which its workers inherit the settings, or in a Ray
actor.  Those of decimal and numpy are the settings of the thread that calls.
"""

from __future__ import annotations

import builtins
import pickle
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from gristmill._base.imports import when_imported

_JAX_SETTINGS = (
    "jax_debug_infs",
    "jax_debug_nans",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_random_seed_offset",
    "jax_threefry_partitionable",
)


class Setting(NamedTuple):
    """All settings of one library: its key in `_KINDS`, and the pickled values."""

    module: str
    pickled: bytes

    def adopt(self, module: ModuleType) -> None:
        """Apply the settings to their module, when this process has imported it."""
        _KINDS[self.module].write(module, pickle.loads(self.pickled))


def read_settings() -> list[Setting]:
    """Return the settings of the libraries that this process has imported."""
    return [
        Setting(name, pickle.dumps(kind.read(sys.modules[name])))
        for name, kind in _KINDS.items()
        if name in sys.modules
    ]


def adopt(settings: Sequence[Setting]) -> None:
    """Apply settings in this process, to each library once it is imported."""
    for setting in settings:
        when_imported(setting.module, setting.adopt)


class _Kind(NamedTuple):
    """Functions that read and write the settings of a module.

    What `read` returns is pickled, and `write` gets it in a worker.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]


def _attribute(name: str) -> _Kind:
    return _Kind(
        lambda module: getattr(module, name),
        lambda module, value: setattr(module, name, value),
    )


def _read_sys(module: Any) -> tuple[int, int]:
    return module.getrecursionlimit(), module.get_int_max_str_digits()


def _write_sys(module: Any, value: tuple[int, int]) -> None:
    module.setrecursionlimit(value[0])
    module.set_int_max_str_digits(value[1])


def _read_filters(module: Any) -> list[tuple[Any, ...]]:
    """Return the filters for built-in categories.

    Other categories are skipped, since workers may not have imported their modules.
    """
    return [
        (action, _text(message), kind.__name__, _text(module_pattern), line)
        for action, message, kind, module_pattern, line in module.filters
        if kind.__module__ == "builtins"
    ]


def _text(pattern: Any) -> str:
    """Return the text of a pattern; Python's own filters have a str or None."""
    return getattr(pattern, "pattern", pattern) or ""


def _write_filters(module: Any, value: list[tuple[Any, ...]]) -> None:
    for action, message, kind, module_pattern, line in reversed(value):
        category = getattr(builtins, kind)
        module.filterwarnings(action, message, category, module_pattern, line)


def _read_levels(module: Any) -> tuple[int, dict[str, int]]:
    root = module.root
    # Loggers of other classes must be created by their libraries.
    levels = {
        name: logger.level
        for name, logger in root.manager.loggerDict.items()
        if type(logger) is module.Logger and logger.level
    }
    return root.manager.disable, {"": root.level, **levels}


def _write_levels(module: Any, value: tuple[int, dict[str, int]]) -> None:
    disabled, levels = value
    module.disable(disabled)
    for name, level in levels.items():
        module.getLogger(name).setLevel(level)


def _read_jax(module: Any) -> dict[str, Any]:
    config = module.config
    names = [name for name in _JAX_SETTINGS if hasattr(config, name)]
    return {name: getattr(config, name) for name in names}


def _write_jax(module: Any, value: dict[str, Any]) -> None:
    for name, setting in value.items():
        if getattr(module.config, name) != setting:
            module.config.update(name, setting)


_KINDS = {
    "sys": _Kind(_read_sys, _write_sys),
    "warnings": _Kind(_read_filters, _write_filters),
    "logging": _Kind(_read_levels, _write_levels),
    "decimal": _Kind(
        lambda decimal: decimal.getcontext(),
        lambda decimal, context: decimal.setcontext(context),
    ),
    "numpy": _Kind(
        lambda numpy: numpy.geterr(), lambda numpy, value: numpy.seterr(**value)
    ),
    "jax": _Kind(_read_jax, _write_jax),
    "torch": _Kind(
        lambda torch: torch.get_default_dtype(),
        lambda torch, dtype: torch.set_default_dtype(dtype),
    ),
    "PIL.Image": _attribute("MAX_IMAGE_PIXELS"),
    "PIL.ImageFile": _attribute("LOAD_TRUNCATED_IMAGES"),
}
