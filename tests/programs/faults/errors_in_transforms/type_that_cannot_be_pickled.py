import threading

from faults.toolbox import At, expect, loader
from programs.faults.errors_in_transforms.frames import frames


def make():
    class Held(Exception):
        lock = threading.Lock()

    raise Held("words", threading.Lock())


iterator = iter(loader([At(42, make)]))
error = expect(RuntimeError, lambda: list(iterator))
assert "Held" in str(error) and "words" in str(error), error
assert frames(error)[-1] == "make"
assert any("record 42" in note for note in error.__notes__)
assert len(list(iterator)) > 5
