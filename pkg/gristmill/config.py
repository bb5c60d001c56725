"""Settings of the whole process, under Grain's names.

The value of a setting is the first of these that exists: the value of `config.update`;
that of the absl flag ``--grain_<name>``, if the program uses absl and has parsed the
flag; that of the environment variable ``GRISTMILL_<NAME>``; its default.  absl is never
imported.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from gristmill._base.lazy_names import public_names

__all__ = ["OPTIONS", "Config", "Option", "UnknownOption", "config"]


class UnknownOption(AttributeError, ValueError):
    """Raised if a setting does not exist.  Grain raises ValueError.

    Example:
        >>> try:
        ...     config.update("py_debug_mod", True)
        ... except UnknownOption as error:
        ...     print(str(error).split(".")[0])
        Unrecognized config option: py_debug_mod
    """


@dataclasses.dataclass(frozen=True)
class Option:
    """The description of a setting.

    Args:
        name: The name, without the prefix of flags and environment variables.
        default: The value if it is not set.
        kind: bool, int or str.
        choices: The allowed values of a str; empty for any.
        help: One sentence for ``--help``.

    Example:
        >>> option = OPTIONS["py_debug_mode"]
        >>> option.default, option.parse("yes", "config.update")
        (False, True)
    """

    name: str
    default: bool | int | str | None
    kind: type[bool] | type[int] | type[str]
    choices: tuple[str, ...] = ()
    help: str = "Accepted for compatibility with Grain; has no effect."

    def parse(self, value: Any, origin: str) -> Any:
        """Return `value`, converted to this setting's kind.

        Args:
            value: A value of this setting's kind, or its text.
            origin: The variable or call that set the value, for error texts.

        Returns:
            A bool, int or str; None only if the default is None.

        Raises:
            ValueError: The value cannot be converted, or is not among the choices.
        """
        if value is None and self.default is None:
            return None
        parsed: Any
        if self.kind is bool:
            parsed = _BOOL_TEXTS.get(str(value).lower())
        elif self.kind is int:
            parsed = _int_or_none(value)
        else:
            parsed = value if isinstance(value, str) else None
        if parsed is None or (self.choices and parsed not in self.choices):
            expected = " or ".join(map(repr, self.choices)) or f"a {self.kind.__name__}"
            raise ValueError(
                f"{self.name} must be {expected}, got {value!r} in {origin}."
            )
        return parsed


_BOOL_TEXTS = {
    **dict.fromkeys(("true", "t", "1", "yes", "y", "on"), True),
    **dict.fromkeys(("false", "f", "0", "no", "n", "off"), False),
}


def _int_or_none(value: Any) -> int | None:
    try:
        return int(value) if not isinstance(value, float) else None
    except (TypeError, ValueError):
        return None


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("py_debug_mode", False, bool),
        Option("py_dataset_visualization_output_dir", None, str),
        Option("py_relay_sigterm_to_main", False, bool),
        Option(
            "py_traceback_filtering",
            "auto",
            str,
            ("auto", "off", "tracebackhide", "quiet_remove_frames", "remove_frames"),
        ),
        Option("tf_interleaved_shuffle", False, bool),
        Option("tf_interleaved_shuffle_block_size", 10, int),
        Option("tf_interleaved_shuffle_parallel_blocks", 10, int),
        Option("tf_lookup_batch_size", 100, int),
        Option("tf_lookup_num_parallel_calls", -1, int),
        Option("tf_lookup_fast_warmup", False, bool),
        Option("tf_optimized_sequential_read", False, bool),
        Option("tf_prefetch_buffer_size", -1, int),
    )
}
"""All settings, by name."""


class Config:
    """The settings; each is an attribute, which `update` changes.

    Example:
        >>> config.update("py_debug_mode", True)
        >>> config.py_debug_mode
        True
        >>> config.update("py_debug_mode", False)
    """

    _updates: dict[str, Any]

    def __init__(self) -> None:
        # __setattr__ raises, because users must not set attributes.
        object.__setattr__(self, "_updates", {})

    def __getattr__(self, name: str) -> Any:
        option = _option_named(name)
        if name in self._updates:
            return self._updates[name]
        flag = _absl_flag(name)
        if flag is not None:
            return flag.value
        variable = f"GRISTMILL_{name.upper()}"
        if variable in os.environ:
            return option.parse(os.environ[variable], variable)
        return option.default

    def get_or_default(self, name: str) -> Any:
        """Return a setting, like the attribute of that name.

        Args:
            name: The name of the setting, such as ``py_debug_mode``.

        Returns:
            The value, of the setting's kind.

        Raises:
            UnknownOption: The setting does not exist.
        """
        return getattr(self, name)

    def update(self, name: str, value: Any) -> None:
        """Change a setting of this process.

        Args:
            name: The name of the setting, such as ``py_debug_mode``.
            value: A value of the setting's kind, or its text.

        Raises:
            UnknownOption: The setting does not exist.
            ValueError: The value cannot be converted, or is not among the choices.
        """
        self._updates[name] = _option_named(name).parse(value, "config.update")

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError("Please use update().")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *OPTIONS})

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in OPTIONS)
        return f"Config({values})"


def _absl_flag(name: str) -> Any:
    """Return the absl flag of a setting if the program set it, else None."""
    flags = sys.modules.get("absl.flags")
    if flags is None or f"grain_{name}" not in flags.FLAGS:
        return None
    flag = flags.FLAGS[f"grain_{name}"]
    is_set = flags.FLAGS.is_parsed() and not flag.using_default_value
    return flag if is_set else None


def _option_named(name: str) -> Option:
    """Return a setting's description; raise UnknownOption if it does not exist."""
    if name in OPTIONS:
        return OPTIONS[name]
    error = UnknownOption(
        f"Unrecognized config option: {name}. Known options: {', '.join(OPTIONS)}."
    )
    error.name = name
    raise error


config = Config()
"""The settings of this process."""


def __dir__() -> list[str]:
    return public_names(__all__)
