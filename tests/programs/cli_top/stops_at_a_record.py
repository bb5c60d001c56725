"""Takes one batch of a loader whose workers get stuck at a record.

    python stops_at_a_record.py grain|torch WORKERS FIFO

It prints a line with the batch, and ends when its standard input closes.
"""

import sys

import numpy as np

import gristmill as grain

AWAITED = 3


class Wait(grain.transforms.Map):
    def __init__(self, fifo):
        self.fifo = fifo

    def map(self, number):
        if number == AWAITED:
            open(self.fifo).close()  # Wait for a writer.
        return np.int64(number)


class Waiting:
    """A map-style dataset of torch."""

    def __init__(self, fifo):
        self.step = Wait(fifo)

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return self.step.map(index)


def main():
    face, workers, fifo = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if face == "torch":
        from gristmill import torch

        loader = torch.DataLoader(Waiting(fifo), batch_size=2, num_workers=workers)
    else:
        loader = grain.DataLoader(
            data_source=range(1000),
            sampler=grain.samplers.SequentialSampler(1000),
            operations=[Wait(fifo), grain.transforms.Batch(2)],
            worker_count=workers,
        )
    iterator = iter(loader)
    print(next(iterator).tolist(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
