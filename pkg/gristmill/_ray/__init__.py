"""Workers on a Ray cluster: actors compute units, lanes in this process call them.

May import `_engine` and the folders below it.  `gristmill.ray` is its public module.
Begin with `lanes.py`: a lane is a thread that takes a worker's place in the scheduler,
so order, positions, restarts and limits are the same as on one machine.
"""
