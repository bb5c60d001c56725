"""Makes batches from samples, and sends them through a slot.

Imports `indices` and `_engine`.  Start with `native.py` and `slot_collation.py`.
"""
