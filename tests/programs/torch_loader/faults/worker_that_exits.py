import os

import gristmill as g
from faults.toolbox import expect
from programs.torch_loader.faults.squares import SQUARES, Squares, make, values


class Exits(Squares):
    def __getitem__(self, i):
        if i == 3:
            os._exit(7)
        return super().__getitem__(i)


iterator = iter(make(Exits(), num_workers=1))
assert values([next(iterator) for _ in range(3)]) == SQUARES[:3]
error = expect(g.errors.WorkerDied, lambda: next(iterator))
assert "exit code 7. Details are lost due to multiprocessing" in str(error.__cause__)
