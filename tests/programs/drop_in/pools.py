import grain
import numpy as np


def elements(workers):
    return sorted(
        map(
            int,
            grain.DataLoader(
                data_source=np.arange(20),
                sampler=grain.samplers.IndexSampler(20, num_epochs=1, seed=0),
                worker_count=workers,
            ),
        )
    )


def prefetched(workers):
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=workers)
    dataset = grain.MapDataset.source(range(20)).map(lambda number: number + 1)
    return sorted(dataset.to_iter_dataset().mp_prefetch(options))


for workers in (2, 2):
    assert elements(workers) == list(range(20))
for workers in (2, 3, 2):
    assert prefetched(workers) == list(range(1, 21))
print("all came")
