"""Waits for the launcher while its source is pickled."""

import gristmill as grain
from support.toy_pools import launchers
from support.waiting import wait_for


class Source:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index

    def __reduce__(self):
        wait_for(launchers)
        return Source, ()


if __name__ == "__main__":
    sampler = grain.SequentialSampler(4)
    loader = grain.DataLoader(data_source=Source(), sampler=sampler, worker_count=1)
    print(list(loader))
