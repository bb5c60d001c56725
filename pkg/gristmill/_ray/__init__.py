"""Workers on a Ray cluster: actors compute units, lanes in this process ask them.

May import `_engine` and what lies below it; `gristmill.ray` is its public face.  Begin
with `lanes.py`: a lane is a thread that takes a worker's place in the scheduler, so
that order, positions, restarts and limits are what they are on one machine.
"""
