import torch.utils.data

import gristmill.torch
from trainers.loaders import Threads

gristmill.torch.install(everywhere=True)
for kind in (torch.utils.data.DataLoader, gristmill.torch.DataLoader):
    loader = kind(range(5), 2, num_workers=1, multiprocessing_context=Threads())
    iterator = iter(loader)
    assert type(iterator) is torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    assert [batch.tolist() for batch in iterator] == [[0, 1], [2, 3], [4]]
    torch.utils.data._utils.worker._worker_info = None
