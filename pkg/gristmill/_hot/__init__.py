"""The loops that touch a Python object per element.

Each loop is a compiled module.  The Python modules support them: `layouts` describes
packed rows, `containers` defines the containers of elements, `block_call` calls the
user's code with several elements, `error_location` has the notes on exceptions, and
`exceptions` has the exceptions that the loops raise.  The modules import each other,
and a few helpers and picklers of `_base`.  Begin with `run`.
"""
