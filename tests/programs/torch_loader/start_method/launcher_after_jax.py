import os
import warnings

import jax

from gristmill.torch import DataLoader
from programs.torch_loader.start_method.parent import Parent

jax.numpy.zeros(1).block_until_ready()

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        [parent] = DataLoader(Parent(), num_workers=1)
        assert parent.item() != os.getpid()
[warning] = told
assert "JAX is initialized" in str(warning.message)
assert warning.filename.endswith("launcher_after_jax.py"), warning.filename
