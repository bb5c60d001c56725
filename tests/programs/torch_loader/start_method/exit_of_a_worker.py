import os
import sys
import tempfile

import gristmill as g
from faults.toolbox import expect
from gristmill.torch import DataLoader


class Exits:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        sys.exit(3)


with tempfile.TemporaryFile() as errors:
    kept = os.dup(2)
    os.dup2(errors.fileno(), 2)
    loader = DataLoader(
        Exits(), num_workers=1, multiprocessing_context=sys.argv[1] or None
    )
    error = expect(g.errors.WorkerDied, lambda: next(iter(loader)), 40)
    os.dup2(kept, 2)
    errors.seek(0)
    print(errors.read().decode())
assert "exit code 3" in str(error.__cause__)
