import multiprocessing
import os
import sys
import types

import numpy as np
import torch

from gristmill.torch import DataLoader


class Main:
    closed = 3


def function(x):
    return x + Main.closed


class Probe:
    def __init__(self, add):
        self.add = add
        self.parent = os.getpid()

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return [
            self.add(index),
            torch.are_deterministic_algorithms_enabled(),
            "settings_of_mine" in sys.modules,
            os.getppid() == self.parent,
            str(torch.get_default_dtype()),
            np.geterr()["divide"],
        ]


sys.modules["settings_of_mine"] = types.SimpleNamespace(value=7)
torch.use_deterministic_algorithms(True)
torch.set_default_dtype(torch.float64)
np.seterr(divide="raise")
for add in (function, lambda x: function(x)):
    iterator = iter(
        DataLoader(Probe(add), None, num_workers=1, multiprocessing_context="launcher")
    )
    assert multiprocessing.active_children() == []
    assert next(iterator) == [3, False, False, False, "torch.float64", "raise"]
