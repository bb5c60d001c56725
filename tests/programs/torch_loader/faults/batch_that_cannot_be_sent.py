from faults.toolbox import expect
from programs.torch_loader.faults.squares import SQUARES, Squares, make, values


class Refuses(Squares):
    def __getitem__(self, i):
        made = super().__getitem__(i)
        return (made.float().requires_grad_() * 2) if i == 5 else made


iterator = iter(make(Refuses(), batch_size=None))
assert values([next(iterator) for _ in range(5)]) == SQUARES[:5]
error = expect(RuntimeError, lambda: next(iterator))
assert "non-leaf" in str(error)
assert values(iterator) == SQUARES[6:]
