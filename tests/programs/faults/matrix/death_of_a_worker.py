import os
import sys

from faults.toolbox import At, Once, check_rest, loader, of_kind, undisturbed
from programs.faults.matrix.deaths import DEATHS
from programs.faults.matrix.kinds import options_of

kind, death, done = sys.argv[1:]
options = options_of(kind)
reference = undisturbed(of_kind(kind, At(-1, None)), **options)
operations = of_kind(kind, At(42, Once(done, DEATHS[death])))

iterator = iter(loader(operations, **options))
check_rest(iterator, reference, 0)
assert os.path.exists(done)
