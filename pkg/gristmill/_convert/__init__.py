"""Converts data sets to record files, in several processes. Conversions can resume.

This package imports sources and the core's writers.  Start with `conversion.py`.
"""
