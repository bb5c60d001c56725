"""Copies batches to an accelerator before the program needs them.

Imports `_torch/batches` and `_engine/device_prefetch.py`.  Start with `device.py`.
"""
