"""What every room may use: checks of arguments, logging, names, types, retries.

It imports nothing of Gristmill but itself.  Begin with `checks.py`.
"""
