# Grain's names exist only after install().
# ruff: noqa: E402, F403, F405
import pickle

import gristmill.drop_in

gristmill.drop_in.install()
from grain._src.core import transforms

print(hasattr(transforms, "Map"), hasattr(transforms, "Nosuch"))
print("Map" in dir(transforms))
from grain._src.core.sharding import *

print(pickle.loads(pickle.dumps(even_split)) is even_split)
