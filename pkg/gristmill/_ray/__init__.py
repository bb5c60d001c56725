"""Workers on a Ray cluster: actors compute units, lanes in this process call them.

May import `_pool` and the folders below it.  `gristmill.ray` is its public module.
"""
