import os
import warnings

import jax

from gristmill.torch import DataLoader
from programs.torch_loader.start_method.parent import Parent

jax.numpy.zeros(1).block_until_ready()

warnings.simplefilter("ignore", RuntimeWarning)  # Hide JAX's own warning.
loader = DataLoader(Parent(), num_workers=1, multiprocessing_context="fork")
assert [parent.item() for parent in loader] == [os.getpid()]
