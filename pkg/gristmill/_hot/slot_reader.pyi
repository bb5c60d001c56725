from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

@final
class Reader: ...

def decode(
    address: int,
    used: int,
    index: int,
    base_factory: Callable[[], Any],
    copy_limit: int,
) -> tuple[Any, npt.NDArray[np.int64], tuple[int, ...]]: ...
