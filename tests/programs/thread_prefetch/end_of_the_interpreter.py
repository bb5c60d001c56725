import time

import gristmill

ds = gristmill.MapDataset.range(10**6).to_iter_dataset()
ds = ds.map(lambda x: time.sleep(0.001) or x)
ds = gristmill.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2)
iterator = iter(ds)
next(iterator)
