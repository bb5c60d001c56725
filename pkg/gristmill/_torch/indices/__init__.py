"""Chooses samples: samplers, draws, batches of indices, requests to workers.

Imports only `private` from the rest of `_torch`.  Start with `draws.py`.
"""
