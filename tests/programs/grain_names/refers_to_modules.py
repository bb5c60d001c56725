import grain
from grain._src.core import sharding, tree


def double(x):
    assert sharding.NoSharding is grain.sharding.NoSharding
    return tree.map_structure(lambda leaf: 2 * leaf, {"x": x})


ds = grain.MapDataset.range(3).map(double).to_iter_dataset()
options = grain.MultiprocessingOptions(num_workers=1)
print(list(ds.mp_prefetch(options)))
