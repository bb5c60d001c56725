"""Runs chains in worker processes and threads.

This package imports `nodes`, `model` and `_engine`.  Start with `process_prefetch.py`.
"""
