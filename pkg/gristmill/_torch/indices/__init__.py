"""Which samples come next: draws, batches of indices, and requests to workers.

It imports `_torch/private.py` and `_base`.  Begin with `draws.py`.
"""
