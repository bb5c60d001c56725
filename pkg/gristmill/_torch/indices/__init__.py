"""Selects samples: samplers, draws, batches of indices, and requests to workers.

From the rest of `_torch` it only imports `private`.  Start with `draws.py`.
"""
