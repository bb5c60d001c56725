"""Which samples come next: samplers, draws, batches of indices, requests to workers.

It imports no other room of `_torch`.  Begin with `draws.py`.
"""
