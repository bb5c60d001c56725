import sys
import threading

from faults.toolbox import At, expect, loader
from programs.faults.errors_in_transforms.frames import frames

workers = int(sys.argv[1])


class Odd(Exception):
    def __init__(self, place, *, size):
        super().__init__(f"at {place}: {size}")
        self.place, self.size = place, size


class Locked(ValueError):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class Local(KeyError):
    __slots__ = ()


def odd():
    raise Odd("here", size=3)


def locked():
    raise Locked("shut")


def local():
    raise Local("key")


def chained():
    try:
        {}["cause"]
    except KeyError as error:
        raise OSError(5, "disk", "/file") from error


def hidden():
    try:
        {}["cause"]
    except KeyError:
        raise OSError(5, "disk") from None


def noted():
    error = StopAsyncIteration("a", 1)
    error.add_note("my own note")
    raise error


def system():
    raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")


def grouped():
    raise ExceptionGroup("several", [ValueError(1), OSError(5, "x")])


def raised(fault, kind):
    iterator = iter(loader([At(42, fault)], workers=workers))
    error = expect(kind, lambda: list(iterator))
    assert frames(error)[-1] == fault.__name__, frames(error)
    assert any("record 42" in note for note in error.__notes__), error.__notes__
    assert len(list(iterator)) > 5
    return error


error = raised(odd, Odd)
assert (error.place, error.size, str(error)) == ("here", 3, "at here: 3")
assert raised(locked, Locked).args == ("shut",)
assert raised(local, Local).args == ("key",)
error = raised(chained, OSError)
assert (error.errno, error.filename) == (5, "/file")
assert type(error.__cause__) is KeyError and frames(error.__cause__) == ["chained"]
assert raised(hidden, OSError).__cause__ is None
assert "my own note" in raised(noted, StopAsyncIteration).__notes__
assert raised(system, UnicodeDecodeError).object == b"\xff"
error = raised(grouped, ExceptionGroup)
assert [type(e) for e in error.exceptions] == [ValueError, OSError]
