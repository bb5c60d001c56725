"""Which samples come next: samplers, draws, batches of indices, requests to workers.

Of the rest of `_torch` it imports `private`.  Begin with `draws.py`.
"""
