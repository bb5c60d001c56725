"""Grain's Dataset API.  Its names are public in `gristmill` and `.experimental`.

A `MapDataset` is indexed, an `IterDataset` is iterated over, a `DatasetIterator` does
that and has a state.  A chain of them is data until somebody asks for an element.
"""

from gristmill._dataset import base as base  # First: the others build on it.
