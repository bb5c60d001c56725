"""Iterates a loader with actors on import, and so does each of its own actors."""

import gristmill
from gristmill.ray import RayWorkers


class Numbers:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


elements = list(gristmill.load(Numbers(), num_epochs=1, workers=RayWorkers(1)))
