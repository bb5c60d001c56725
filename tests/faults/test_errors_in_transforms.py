"""An exception of the user's code arrives as it was, and the rest follows."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

TELL = """
import traceback
def frames(error):
    return [f.name for f in traceback.extract_tb(error.__traceback__)]
def last_file(error):
    return traceback.extract_tb(error.__traceback__)[-1].filename
"""


@pytest.mark.claim("the note on an exception says that frames were cut")
@pytest.mark.claim(
    "An exception of your code keeps its type, where that can be pickled, and names "
    "the operation, the record and the worker."
)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("kind", ["[{}]", "filtered({})"])
def test_next_goes_on_after_an_exception_as_without_workers(kind, batch, workers):
    run(
        TELL
        + f"operations = {kind.format('At(42, lambda: complain(42))')}"
        + f"\nbatch, workers = {batch}, {workers}"
        + """
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
            assert rest == found[-len(rest):] and len(rest) > 5
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
"""
    )


@pytest.mark.claim("an exception of a worker ends its stream")
def test_elements_after_the_failing_one_are_literally_these():
    run(
        """
        def complain():
            raise LookupError
        def trace(workers, batch):
            iterator = iter(loader([At(4, complain)], records=14, batch=batch,
                                   workers=workers))
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
            assert batches == [[0, 2], [1, 3], "error", [5, 7], [6, 8], [9, 11],
                               [10, 12], [13]], (workers, batches)
        """
    )


@pytest.mark.claim(
    "An exception of your code keeps its type, where that can be pickled, and names "
    "the operation, the record and the worker."
)
@pytest.mark.parametrize("workers", [0, 2])
def test_types_of_all_sorts_arrive(workers):
    run(
        TELL
        + f"workers = {workers}"
        + """
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
    raise UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "bad")
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
assert raised(system, UnicodeDecodeError).object == b"\\xff"
error = raised(grouped, ExceptionGroup)
assert [type(e) for e in error.exceptions] == [ValueError, OSError]
"""
    )


@pytest.mark.claim(
    "An exception of your code keeps its type, where that can be pickled, and names "
    "the operation, the record and the worker."
)
def test_exception_whose_type_cannot_be_pickled_keeps_its_words():
    run(
        TELL
        + """
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
"""
    )


@pytest.mark.parametrize(
    ("fault", "code"), [("sys.exit(4)", 4), ("raise_keyboard()", 1)]
)
def test_exceptions_that_are_no_exceptions_end_the_worker(fault, code):
    run(
        f"""
        def raise_keyboard():
            raise KeyboardInterrupt
        iterator = iter(loader([At(42, lambda: {fault})]))
        error = expect(g.errors.WorkerDied, lambda: list(iterator))
        assert "record 42" in str(error) and "exit code {code}" in str(error), error
        """
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_source_and_filter_and_batch_function_are_named(workers):
    run(
        TELL
        + f"workers = {workers}"
        + """
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
        data_source=source, operations=operations, worker_count=workers, streams=2,
        sampler=g.IndexSampler(24, shuffle=False, num_epochs=1, seed=0))
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
"""
    )


def test_outputs_beside_one_that_cannot_be_sent_are_whole():
    # Batches of one: many of them, made in place, share a slot.
    run(
        """
        class Source:
            def __len__(self):
                return 64
            def __getitem__(self, key):
                odd = threading.Lock() if key == 40 else key
                return {"x": np.full(2000, key), "odd": odd}
        made = g.DataLoader(
            data_source=Source(), operations=[g.Batch(1)], worker_count=1,
            sampler=g.IndexSampler(64, shuffle=False, num_epochs=1, seed=0))
        iterator = iter(made)
        seen = []
        def drain():
            for batch in iterator:
                seen.append(set(batch["x"].ravel().tolist()))
        error = expect(TypeError, drain)
        assert "cannot pickle" in str(error), error
        drain()
        assert seen == [{key} for key in range(64) if key != 40], seen
        """
    )
