"""The workers of a loader: their code, and how they are started and stopped.

It imports `batches`, `indices` and `_engine`.  Begin with `pool.py`.
"""
