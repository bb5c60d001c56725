"""Reaches Grain's internal modules as attributes, which `import grain` makes there."""

import gristmill.drop_in

gristmill.drop_in.install()
import grain  # noqa: E402

print(grain._src.python.dataset.dataset.MapDataset is grain.MapDataset)
print(grain._src.python.dataset.transformations.batch.make_batch([1, 2]).tolist())
print(hasattr(grain.proto, "execution_summary_pb2"))
print(hasattr(grain._src.python, "grain_pool"), hasattr(grain._src, "tensorflow"))
