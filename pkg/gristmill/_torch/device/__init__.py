"""Copies batches to an accelerator ahead of need.

It imports `_torch/private.py` and `_engine/ahead.py`.  Begin with `device.py`.
"""
