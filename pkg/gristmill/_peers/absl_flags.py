"""Grain's flags for programs that use absl."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from gristmill.config import OPTIONS

__all__ = ["define"]


def define(flags: ModuleType) -> None:
    """Define Grain's flags that are missing in ``absl.flags``.

    Grain itself may be imported later and define them again.
    """
    definitions: dict[type, Any] = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        str: flags.DEFINE_string,
    }
    for option in OPTIONS.values():
        name = f"grain_{option.name}"
        if name in flags.FLAGS:
            continue
        arguments: tuple[Any, ...] = (name, option.default, option.help)
        define_flag = definitions[option.kind]
        if option.choices:
            arguments = (name, option.default, option.choices, option.help)
            define_flag = flags.DEFINE_enum
        define_flag(*arguments, allow_override=True)
    # Grain does not have this flag in its config object.
    profiling_flag = "grain_enable_multiprocess_worker_profiling"
    if profiling_flag not in flags.FLAGS:
        flags.DEFINE_bool(
            profiling_flag, False, "Accepted; has no effect.", allow_override=True
        )
