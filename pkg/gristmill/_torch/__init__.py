"""The PyTorch front end; `gristmill.torch` has the public names.

`private.py` alone names what is private to torch.  A loader's way is `indices` (what to
ask for), `workers` (who is asked), `batches` (what comes back), `iterators` (the order
of it) and `resume` (states); `device` copies batches ahead.  It imports `_engine` and
below.  Begin with `loader.py`.
"""
