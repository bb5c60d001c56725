import os
import sys

from faults.toolbox import Once, check_rest, loader, of_kind, undisturbed
from programs.faults.failure_table.at_start import AtStart

kind, done = sys.argv[1:]
operations = of_kind(kind, AtStart(Once(done, lambda: os._exit(9))))

iterator = iter(loader(operations))
check_rest(iterator, undisturbed(operations), 0)
assert os.path.exists(done)
