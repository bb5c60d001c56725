"""Makes batches of samples, and sends them through a slot.

It imports `indices` and `_engine`.  Begin with `native.py` and `slot_collation.py`.
"""
