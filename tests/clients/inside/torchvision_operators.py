"""Makes torchvision importable with a build of torch without CUDA.

The wheel of torchvision on PyPI needs the CUDA libraries of the wheel of torch on PyPI.
With another build of torch its compiled part does not load, and its import fails at the
first operator that it describes. The programs do not call these operators.
"""

import importlib
import importlib.util
import sys

# The operators that torchvision describes even if its compiled part did not load.
OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare():
    """Declare the operators if torchvision is installed and needs it.

    Returns:
        Library | None: The library of the declared operators, which exist until it is
            deleted, or None if nothing was declared.
    """
    if importlib.util.find_spec("torchvision") is None:
        return None
    torch = importlib.import_module("torch")
    if torch.version.cuda is not None:
        return None
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in OPERATORS:
            library.define(name + SIGNATURE)
        return library
    return None
