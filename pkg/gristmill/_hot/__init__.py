"""The loops that touch a Python object per element.

Compiled modules, one for each loop, and what they need in Python: `layouts` is data
about packed rows, `containers` says what the containers of elements are, `place` and
`signals` are what the loops put on exceptions, and raise.  They import each other, and
of `_base` what pickles what they cannot; begin with `run`.
"""
