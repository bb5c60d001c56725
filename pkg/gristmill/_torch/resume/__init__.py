"""States of the stateful loader, in torchdata's layout, and its iterators.

It imports `iterators`.  Begin with `single.py`.
"""
