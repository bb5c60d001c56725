"""One core for this process, which finds the module that toy pools run."""

import os
import sys


def prepare(folder):
    sys.path.insert(0, folder)
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
