import os
import threading
import warnings

import jax

from gristmill.torch import DataLoader
from programs.torch_loader.start_method.parent import Parent

jax.numpy.zeros(1).block_until_ready()

warnings.simplefilter("ignore")
lock = threading.Lock()


class Locked(Parent):
    def __getitem__(self, index):
        with lock:
            return os.getppid()


[parent] = DataLoader(Locked(), num_workers=1)
assert parent.item() == os.getpid()
