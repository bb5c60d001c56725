import sys

import gristmill as g
from faults.toolbox import expect, loader
from programs.faults.memory.wide import Wide

limit = int(sys.argv[1]) << 20
iterator = iter(loader([Wide()], batch=8, memory_limit=limit))
error = expect(g.errors.ArenaFull, lambda: next(iterator))
assert str(limit) in str(error), error
