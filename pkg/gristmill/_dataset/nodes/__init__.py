"""The nodes of chains. Methods of datasets create the nodes registered by `builds`.

Modules import `model` and each other without cycles.  Start with `map.py`.
"""
