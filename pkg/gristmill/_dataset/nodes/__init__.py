"""The nodes of chains, a file for each kind, registered by `model/building.py`.

They import `model` and one another, downward.  Begin with `map.py`.
"""
