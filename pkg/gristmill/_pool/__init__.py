"""Pools of processes that compute units for several programs, and lanes that call them.

May import `_engine` and the folders below it.  `gristmill._ray` has pools of actors,
`gristmill._host` pools of processes of this machine.  Begin with `lanes.py`: a lane is
a thread that takes a worker's place in the scheduler, so order, positions, restarts and
limits are the same as with workers of its own.
"""
