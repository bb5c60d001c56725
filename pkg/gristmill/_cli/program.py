"""Loads the dataset or the loader of a user's program."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from gristmill._base.argument_checks import kind
from gristmill._convert.errors import CommandError, UsageError


def load_pipeline(text: str) -> Any:
    """Return what a function of a program returns, such as "train:make_dataset".

    Modules of the current folder are found, too.

    Raises:
        UsageError: The text does not have this form.
        CommandError: The module or the function does not exist, or fails.
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise UsageError(
            f"--program must be MODULE:FUNCTION, such as train:make_dataset, got"
            f" {text!r}."
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise CommandError(
            f"--program {text}: {error}. Run the command where the program is started."
        ) from error
    function = module
    for part in name.split("."):
        if not hasattr(function, part):
            raise CommandError(f"--program {text}: {module_name} has no {name}.")
        function = getattr(function, part)
    if not callable(function):
        raise CommandError(
            f"--program {text}: expected a function that returns a dataset or a"
            f" DataLoader, got {kind(function)}."
        )
    return function()
