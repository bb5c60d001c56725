import sys

import gristmill as g
from faults.toolbox import At, expect, loader

code = int(sys.argv[1])


def leave():
    if code == 1:
        raise KeyboardInterrupt
    sys.exit(code)


iterator = iter(loader([At(42, leave)]))
error = expect(g.errors.WorkerDied, lambda: list(iterator))
assert "record 42" in str(error) and f"exit code {code}" in str(error), error
