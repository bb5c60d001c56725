import sys

import gristmill as g
from faults.toolbox import At, digest, expect, loader, of_kind, undisturbed
from programs.faults.matrix.deaths import DEATHS
from programs.faults.matrix.kinds import options_of

kind, death, cause = sys.argv[1:]
options = options_of(kind)
reference = undisturbed(of_kind(kind, At(-1, None)), **options)
operations = of_kind(kind, At(42, DEATHS[death]))

iterator = iter(loader(operations, **options))
before = []


def drain():
    for element in iterator:
        before.append(element)


error = expect(g.errors.WorkerDied, drain)
assert cause in str(error), error
assert "on record 42 of stream 0, 2 times in a row (max_restarts=1)" in str(error)
assert "use fewer workers or smaller batches" in str(error), error
# Single elements are computed in runs of 16 of a stream; the whole run fails.
place = {"single": 32, "filtered": 6, "batches": 10}[kind]
assert digest(before) == reference[:place], (len(before), place)
again = expect(g.errors.WorkerDied, lambda: next(iterator))
assert str(again) == str(error)
