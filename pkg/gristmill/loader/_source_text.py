"""The description of a data source in saved states."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gristmill.sources._folder import without_folder_path


def text_in_states(argument: Any, source: Any) -> str:
    """Return the description of a source, the same as in earlier releases.

    Args:
        argument: The user's argument.
        source: The source that the loader made from it.
    """
    if isinstance(argument, (list, tuple, np.ndarray)):
        return str(type(argument))
    # The `repr` of this node shows elements or paths.  Its module is imported if the
    # program has made one.
    nodes = sys.modules.get("gristmill._dataset.nodes.source")
    is_node = nodes is not None and type(source) is nodes.SourceMapDataset
    return without_folder_path(f"{source}" if is_node else repr(source))
