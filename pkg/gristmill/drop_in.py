"""Runs an unmodified Grain script on Gristmill.

    python -m gristmill.drop_in script.py [arguments...]
    python -m gristmill.drop_in -m package.module [arguments...]

In the script, ``import grain`` and imports of its submodules return Gristmill's
modules.  So do imports of modules of ``grain._src`` that have a counterpart here;
others are an error.  If absl is installed, Grain's ``--grain_*`` flags are defined, so
that ``app.run`` accepts them.  A program may also call `install` itself, before its
first ``import grain``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys

from gristmill._base import grain_names
from gristmill._base.lazy_names import public_names

__all__ = ["install", "main"]

# Set for the worker processes, which call `install_if_enabled` before they unpickle any
# object, because that may import grain.
_ENABLED_VARIABLE = "GRISTMILL_DROP_IN"

_SUBMODULES = (
    "checkpoint",
    "constants",
    "experimental",
    "multiprocessing",
    "python",
    "python.experimental",
    "samplers",
    "sharding",
    "sources",
    "transforms",
)


def install() -> None:
    """Make ``import grain`` mean Gristmill in this process and its workers.

    Raises:
        RuntimeError: The real Grain was imported before.

    Example:
        >>> install()
        >>> import grain.experimental
        >>> grain.experimental.__name__
        'gristmill.experimental'
    """
    gristmill = importlib.import_module("gristmill")
    imported = sys.modules.get("grain")
    if imported is not None and imported is not gristmill:
        raise RuntimeError(
            "gristmill.drop_in.install() must be called before grain is imported, found"
            " that the real grain is imported already. Call install() earlier, or else"
            " some objects would be Grain's and some Gristmill's."
        )
    sys.modules["grain"] = gristmill
    for name in _SUBMODULES:
        sys.modules[f"grain.{name}"] = importlib.import_module(f"gristmill.{name}")
    grain_names.install()
    # Grain imports absl, which defines the flags.
    if importlib.util.find_spec("absl") is not None:
        importlib.import_module("absl.flags")
    os.environ[_ENABLED_VARIABLE] = "1"


def install_if_enabled() -> None:
    """Call `install` in a worker of a process that called it."""
    if os.environ.get(_ENABLED_VARIABLE) == "1":
        install()


def main(arguments: list[str]) -> None:
    """Run ``script.py args...`` or ``-m module args...`` as the main program.

    Args:
        arguments: The arguments of the command line, without the program's name.

    Raises:
        SystemExit: No program was given, or help was requested.

    Example:
        >>> import pathlib, tempfile
        >>> script = pathlib.Path(tempfile.mkdtemp(), "train.py")
        >>> _ = script.write_text("import grain, sys; print(grain, sys.argv[1:])")
        >>> main([str(script), "--steps=3"])  # doctest: +ELLIPSIS
        <module 'gristmill' from ...> ['--steps=3']
    """
    as_module = arguments[:1] == ["-m"]
    program = arguments[1:] if as_module else arguments
    if not program or program[0] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if program else 2)
    install()
    sys.argv = program
    if as_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


def __dir__() -> list[str]:
    return public_names(__all__)


if __name__ == "__main__":
    main(sys.argv[1:])
