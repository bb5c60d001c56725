"""The base classes of datasets and their iterators.

This package imports `_base` and public modules, but not nodes.  Start with
`map_dataset.py`.
"""
