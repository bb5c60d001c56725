from faults.toolbox import At, loader


def complain():
    raise LookupError


def trace(workers, batch):
    iterator = iter(loader([At(4, complain)], records=14, batch=batch, workers=workers))
    found = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except LookupError:
            found.append("error")
        except StopIteration:
            return found


for workers in (0, 1, 2):
    single = trace(workers, 0)
    assert single == [0, 1, 2, 3, "error", *range(5, 14)], (workers, single)
    batches = trace(workers, 2)
    assert batches == [
        [0, 2],
        [1, 3],
        "error",
        [5, 7],
        [6, 8],
        [9, 11],
        [10, 12],
        [13],
    ], (workers, batches)
