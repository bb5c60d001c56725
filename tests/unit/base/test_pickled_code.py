"""Code that is pickled by value keeps the name and the lines of its file."""

import inspect
import linecache
import pickle

import pytest

from gristmill._base import open_files

TEXT = "def outer():\n    def inner():\n        return 1\n    return inner\n"
CELL = "<cell of a test>"


def code_of(filename):
    return compile(TEXT, filename, "exec")


@pytest.fixture
def cell():
    linecache.cache[CELL] = (len(TEXT), None, TEXT.splitlines(True), CELL)
    yield code_of(CELL)
    del linecache.cache[CELL]


def sent(thing):
    return pickle.loads(open_files.dumps(thing))


def test_code_pickled_by_value_keeps_its_filename():
    code = sent(code_of("/a/b.py"))
    [outer] = filter(inspect.iscode, code.co_consts)
    [inner] = filter(inspect.iscode, outer.co_consts)
    assert [part.co_filename for part in (code, outer, inner)] == ["/a/b.py"] * 3


def test_code_of_cell_is_pickled_with_its_lines(cell):
    data = open_files.dumps(cell)
    del linecache.cache[CELL]
    code = pickle.loads(data)
    assert linecache.getlines(CELL) == TEXT.splitlines(True)
    linecache.checkcache()
    assert inspect.getsource(code) == TEXT


def test_unpickling_cell_code_keeps_existing_lines(cell):
    data = open_files.dumps(cell)
    linecache.cache[CELL] = (1, None, ["other\n"], CELL)
    pickle.loads(data)
    assert linecache.getlines(CELL) == ["other\n"]


def test_lines_of_cell_are_pickled_once(cell):
    code_alone, codes = open_files.dumps(cell), open_files.dumps([cell, code_of(CELL)])
    assert code_alone.count(b"def inner") == codes.count(b"def inner") == 1


@pytest.mark.parametrize("entry", [(lambda: TEXT,), (9, 1.0, [TEXT], CELL)])
def test_code_of_file_is_pickled_without_lines(cell, entry):
    linecache.cache[CELL] = entry
    assert b"def inner" not in open_files.dumps(cell)
