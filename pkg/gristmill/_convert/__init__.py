"""Converts data sets to files of records, in processes of its own, and resumably.

It imports sources and the core's writers.  Begin with `conversion.py`.
"""
