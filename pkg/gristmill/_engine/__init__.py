"""Runs the programs of loaders: in this process, or in the core's worker processes.

A program is compiled once and cut into streams, and all processes run the same code.
This package imports `_workers`, `_hot`, `_core` and public modules, but not datasets or
torch.  Begin with `program.py` and `worker.py`.
"""
