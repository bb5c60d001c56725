import re
import sys

from programs.torch_loader.faults.squares import Squares, make


class Holds(Squares):
    """Holds the GIL of its worker after the first samples."""

    def __getitem__(self, i):
        if i > 1:
            re.match("(a+)+$", "a" * 40 + "b")
        return super().__getitem__(i)


kinds = {"Squares": Squares, "Holds": Holds}
if __name__ == "__main__":
    dataset = kinds[sys.argv[1]](10**6)
    iterator = iter(make(dataset, multiprocessing_context=sys.argv[2] or None))
    next(iterator)
    print(*[worker.pid for worker in iterator._workers], flush=True)
    sys.stdin.read()
