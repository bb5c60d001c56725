import numpy as np
import numpy.typing as npt

def ints_at(
    values: list[int], block: npt.NDArray[np.int64] | range
) -> npt.NDArray[np.int64]: ...
