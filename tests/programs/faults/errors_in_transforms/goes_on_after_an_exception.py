import sys

from faults.toolbox import At, digest, loader, of_kind
from programs.faults.errors_in_transforms.frames import frames

kind, batch, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
operations = of_kind(kind, At(42, lambda: complain(42)))


def complain(x):
    raise LookupError("no", x)


def trace(workers):
    iterator = iter(loader(operations, batch=batch, workers=workers))
    found = []
    rest = None
    while True:
        try:
            found += digest([next(iterator)])
        except StopIteration:
            assert rest == found[-len(rest) :] and len(rest) > 5
            return found
        except LookupError as error:
            found.append(("raised", error.args))
            assert frames(error)[-2:] == ["<lambda>", "complain"], frames(error)
            assert "map" in frames(error)
            notes = "; ".join(error.__notes__)
            assert "At" in notes and "record 42" in notes, notes
            assert ("in worker " in notes) == (workers > 0)
            resumed = iter(loader(operations, batch=batch, workers=workers))
            resumed.set_state(iterator.get_state())
            rest = digest(resumed)


found = trace(workers)
assert found == trace(2 - workers), found
raised = [item[0] == "raised" for item in found]
assert sum(raised) == 1
