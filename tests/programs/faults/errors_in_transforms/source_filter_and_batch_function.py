import sys

import numpy as np

import gristmill as g
from faults.toolbox import Add
from programs.faults.errors_in_transforms.frames import frames

workers = int(sys.argv[1])


class Source:
    def __len__(self):
        return 24

    def __getitem__(self, key):
        if key == 9:
            raise OSError("unreadable")
        return key


class Pick(g.FilterTransform):
    def filter(self, x):
        return 1 // (x - 5) < 99


def make(elements):
    if 8 in elements:
        raise ArithmeticError("no batch")
    return np.array(elements)


def errors(source, operations):
    dataset = g.DataLoader(
        data_source=source,
        operations=operations,
        worker_count=workers,
        streams=2,
        sampler=g.IndexSampler(24, shuffle=False, num_epochs=1, seed=0),
    )
    iterator = iter(dataset)
    try:
        list(iterator)
    except Exception as error:
        list(iterator)
        return error


error = errors(Source(), [Add()])
assert type(error) is OSError and "__getitem__" in frames(error)
assert "record 9" in str(error.__notes__), error.__notes__
error = errors(range(24), [Pick()])
assert type(error) is ZeroDivisionError and frames(error)[-1] == "filter"
assert "Pick" in str(error.__notes__) and "record 5" in str(error.__notes__)
error = errors(range(24), [g.Batch(3, batch_fn=make)])
assert type(error) is ArithmeticError and frames(error)[-1] == "make"
assert "batch_fn" in str(error.__notes__)
