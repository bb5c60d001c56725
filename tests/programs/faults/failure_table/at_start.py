"""A fault in each process that is forked from the one which loads the pipeline."""

import os

import gristmill as g


# Unpickled in the zygote; every process that this forks then calls `fault`.
class AtStart(g.MapTransform):
    def __init__(self, fault):
        self.fault = fault

    def __setstate__(self, state):
        self.__dict__ = state
        os.register_at_fork(after_in_child=self.fault)

    def map(self, x):
        return x
