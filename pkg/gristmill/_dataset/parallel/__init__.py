"""Runs chains in worker processes and threads.

It imports `nodes`, `model` and `_engine`.  Begin with `process_prefetch.py`.
"""
