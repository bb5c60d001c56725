"""Runs the programs of loaders: in this process, or in workers by the core.

A program is compiled once, cut into streams, and run by the same code in every process.
It imports `_workers`, `_hot`, `_core` and public modules, and knows no dataset and no
torch.  Begin with `program.py` and `worker.py`.
"""
