"""Makes batches of samples, and sends them through a slot.

It imports `indices`.  Begin with `native.py` and `slot_collation.py`.
"""
