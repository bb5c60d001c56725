import os

from faults.toolbox import loader
from programs.faults.memory.wide import Wide

iterator = iter(loader([Wide()], records=1000, batch=8))
kept = list(iterator)
total = sum(array.nbytes for array in kept)
assert total > 256 << 20, total
for array, wanted in zip(
    kept, loader([], records=1000, batch=8, workers=0), strict=True
):
    assert (array == wanted[:, None]).all()
assert os.listdir("/dev/shm") == []
