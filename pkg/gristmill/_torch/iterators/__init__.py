"""A loader's iterators: without workers and with several.

It imports `workers` and what that does.  Begin with `single.py`.
"""
