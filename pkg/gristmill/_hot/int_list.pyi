import numpy as np
import numpy.typing as npt

def ints_at(
    values: list[int], indices: npt.NDArray[np.int64] | range
) -> npt.NDArray[np.int64]: ...
