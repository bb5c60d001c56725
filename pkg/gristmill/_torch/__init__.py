"""The PyTorch front end; `gristmill.torch` has the public names.

`indices` chooses the samples and packs requests, `workers` runs the processes that
answer them, `batches` makes batches, `iterators` delivers them in order, and `resume`
saves and restores states.  `device` copies batches to an accelerator.  Only
`private.py` uses private parts of torch.  Imports `_engine` and the packages below it.
Start with `loader.py`.
"""
