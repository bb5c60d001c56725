"""The worker processes of a loader: their program, start and end.

Imports `batches`, `indices` and `_engine`.  Start with `pool.py`.
"""
