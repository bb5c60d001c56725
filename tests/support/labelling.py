"""Steps of loaders, in a module without torch so that workers start fast."""

import numpy as np

import gristmill as g


class FailsAt(g.MapTransform):
    def __init__(self, record):
        self.record = record

    def map(self, element):
        if element["x"][0] == self.record:
            raise KeyError("no such file")
        return element


class Labelled(g.MapTransform):
    def map(self, row):
        return {"x": row, "label": np.int64(row[0])}
