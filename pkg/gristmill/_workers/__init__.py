"""The processes that Gristmill starts: the launcher, its zygotes, and the workers.

This package imports `_base` and `_core`.  The code that workers run is in `_engine`.
Begin with `parent.py`.
"""
