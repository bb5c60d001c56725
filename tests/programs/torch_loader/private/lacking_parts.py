import warnings

import torch.utils.data

# Only names that neither torch itself nor batches of the loaders need.
del torch._utils.ExceptionWrapper
del torch._neg_view
del torch.autograd._profiler_enabled
del torch.utils.data.dataloader._sharding_worker_init_fn

warnings.simplefilter("error")
import gristmill.torch  # noqa: E402

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    for workers in (0, 1):
        loader = gristmill.torch.DataLoader(range(5), 2, num_workers=workers)
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
[warning] = warned
assert "does not exist. Loaders use torch's own" in str(warning.message)
