"""Prefetches batches to an accelerator.

It imports `_torch/private.py` and `_engine/ahead.py`.  Begin with `device.py`.
"""
