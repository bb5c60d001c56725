"""What datasets and their iterators are, whatever they do.

It imports `_base` and public modules, no node.  Begin with `map_dataset.py`.
"""
