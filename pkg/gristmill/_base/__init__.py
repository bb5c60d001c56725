"""Shared helpers: argument checks, logging, names, types, retries.

Every package may import this one.  It imports no other package of Gristmill.  Begin
with `argument_checks.py`.
"""
