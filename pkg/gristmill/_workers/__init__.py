"""Processes that are not the user's: the launcher, the zygotes it forks, workers.

It imports `_base` and `_core`; what workers run is `_engine`'s.  Begin with
`parent.py`.
"""
