import sys
import threading

from faults.toolbox import expect
from programs.torch_loader.faults.squares import SQUARES, Squares, make, values


class Locks(Squares):
    def __getitem__(self, i):
        return threading.Lock() if i == 5 else super().__getitem__(i)


loader = make(Locks(), batch_size=None, multiprocessing_context=sys.argv[1] or None)
iterator = iter(loader)
assert values([next(iterator) for _ in range(5)]) == SQUARES[:5]
error = expect(TypeError, lambda: next(iterator))
assert "cannot pickle" in str(error)
assert values(iterator) == SQUARES[6:]
