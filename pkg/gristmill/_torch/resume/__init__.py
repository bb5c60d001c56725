"""Positions of the stateful loader's epochs, and their states in torchdata's layout.

Begin with `epoch_position.py`.  Iterators call the positions, which do not import them.
"""
