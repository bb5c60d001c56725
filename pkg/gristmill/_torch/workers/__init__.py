"""The workers of a loader: what they run, how they start, and who ends them.

It imports `batches`, `indices` and `_engine`.  Begin with `pool.py`.
"""
