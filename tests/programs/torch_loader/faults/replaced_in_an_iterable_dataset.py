import os
import signal

import torch

from programs.torch_loader.faults.squares import make


class Counts(torch.utils.data.IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        for i in range(50):
            yield torch.tensor([worker, i])


iterator = iter(make(Counts(), batch_size=2, max_restarts=2))
given = []
for turn in range(50):
    given.append(next(iterator).tolist())
    if turn in (7, 30):
        os.kill(iterator._workers[turn % 2].pid, signal.SIGKILL)
wanted = [[[w, i], [w, i + 1]] for i in range(0, 50, 2) for w in (0, 1)]
assert given == wanted
