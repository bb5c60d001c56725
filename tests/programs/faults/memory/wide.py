"""Leaves that are too large to be copied out of their slots."""

import numpy as np

import gristmill as g


class Wide(g.MapTransform):
    def map(self, x):
        return np.full(40_000, x)
