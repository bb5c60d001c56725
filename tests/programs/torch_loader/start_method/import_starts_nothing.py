import os

from faults.toolbox import descendants

before = len(os.listdir("/proc/self/fd"))
import torch  # noqa: E402, F401

threads = len(os.listdir("/proc/self/task"))
import gristmill.torch  # noqa: E402, F401

assert len(os.listdir("/proc/self/task")) == threads
assert descendants(os.getpid()) == []
assert len(os.listdir("/proc/self/fd")) == before
