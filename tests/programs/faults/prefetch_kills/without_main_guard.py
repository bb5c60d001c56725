import gristmill as g

ds = g.MapDataset.range(6).map(lambda x: x * 10).to_iter_dataset()
print(list(ds.mp_prefetch(g.MultiprocessingOptions(num_workers=2))))
