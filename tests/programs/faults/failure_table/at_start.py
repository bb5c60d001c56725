"""A fault in each process forked from the one that loads the pipeline."""

import os

import gristmill as g


# Unpickled in the zygote; every process forked from it then calls `fault`.
class AtStart(g.MapTransform):
    def __init__(self, fault):
        self.fault = fault

    def __setstate__(self, state):
        self.__dict__ = state
        os.register_at_fork(after_in_child=self.fault)

    def map(self, x):
        return x
