"""Finds out which part of a chain takes how long: reports, tables, pictures.

It imports `_dataset`, which knows nothing of it but `model/observer.py`.  Begin with
`watch.py`, which times every iterator now and then, `copying.py`, which has every node
of a chain measured, and `reporting.py`, what becomes of both.
"""

import gristmill._dataset  # noqa: F401 - When it is there, it is told of `face`.
