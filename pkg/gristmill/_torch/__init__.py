"""The PyTorch front end; `gristmill.torch` has the public names.

Only `private.py` uses private parts of torch.  A loader uses `indices` (requests),
`workers` (processes that answer them), `batches` (the answers), `iterators` (their
order) and `resume` (states).  `device` prefetches batches to an accelerator.  This
package imports `_engine` and the layers below it.  Start with `loader.py`.
"""
