"""Types that several modules share, and what a user may implement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]

# Which containers an element is made of: jax's pytrees, or only list, tuple and
# mappings, which is what Grain does where jax is not installed.
Rules: TypeAlias = Literal["jax", "plain"]

# Returns a C-contiguous array of that shape and dtype, its bytes undefined.  The
# engine allocates batches inside shared memory with it.
Alloc: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]
