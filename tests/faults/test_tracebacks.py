"""An error in a worker shows the user's lines once, in scripts and in notebooks."""

import json
import re
import subprocess
import sys

import pytest

from faults.scripts import DEADLINE_S, PROGRAMS, environment

pytestmark = pytest.mark.multiprocess

PROGRAM = PROGRAMS / "faults" / "tracebacks" / "failing.py"
# Like a cell of IPython, it has lines in `linecache` but no file.
CELL = """
import linecache
text = {text!r}
linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
exec(compile(text, "<cell 1>", "exec"))
"""
TEXT = PROGRAM.read_text()
FORMS = {
    "script": [str(PROGRAM)],
    "cell": ["-c", CELL.format(text=TEXT)],
    "text": ["-c", TEXT],
}
FILES = {"script": str(PROGRAM), "cell": "<cell 1>", "text": "<string>"}
# The last frames of each error, named by the comments on their lines.
SHOWN = {
    "transform": ["in Decode", "in fail"],
    "filter": ["in Keep", "in fail"],
    "source": ["in Source", "in fail"],
    "cause": ["in Chain"],
    "unpicklable": ["in Hide"],
    "batched chain": ["in fail"],
    "iterated chain": ["in fail"],
    "torch fork": ["in Source", "in fail"],
    "torch launcher": ["in Source", "in fail"],
}
# A cause has its own; torch copies the worker's traceback into the error's text.
TRACEBACKS = {"cause": 2, "torch fork": 2, "torch launcher": 2}
LINES = TEXT.splitlines()


@pytest.fixture(scope="module", params=FORMS)
def form(request):
    return request.param


@pytest.fixture(scope="module")
def texts(form):
    names = ["transform"] if form == "text" else SHOWN
    done = subprocess.run(
        [sys.executable, *FORMS[form], *names],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def line_of(mark):
    (number,) = [n for n, line in enumerate(LINES, 1) if line.endswith(f"# {mark}")]
    return number


@pytest.mark.claim("Errors")
def test_worker_error_shows_the_users_lines(form, texts):
    for name, text in texts.items():
        frames = re.findall(r'File "(.*)", line (\d+), in .*\n(?: {4}(.*))?', text)
        marks = SHOWN[name]
        for (file, line, shown), mark in zip(frames[-len(marks) :], marks, strict=True):
            assert (file, int(line)) == (FILES[form], line_of(mark)), name
            if form != "text":  # Python 3.13 shows the lines of `python -c`, too.
                assert shown == LINES[line_of(mark) - 1].strip(), name


@pytest.mark.claim("Errors")
def test_worker_error_has_one_traceback(texts):
    for name, text in texts.items():
        tracebacks = text.count("Traceback (most recent call last)")
        assert tracebacks == TRACEBACKS.get(name, 1), name
        assert "During handling" not in text, name


def test_worker_error_shows_no_frame_of_gristmill(texts):
    for name, text in texts.items():
        assert re.findall(r'File ".*gristmill/_.*"', text) == [], name


def test_traceback_marks_the_failing_expression(form, texts):
    if form != "text":
        marks = re.findall(r"return (.*)  # in Decode\n( *\^+)\n", texts["transform"])
        assert marks == [("fail(x)", " " * 11 + "^" * 7)]


def test_cause_of_a_worker_error_is_shown_once(form, texts):
    if form != "text":
        for part in ("the direct cause", "a note on the cause", "LookupError: bad 5"):
            assert texts["cause"].count(part) == 1


def test_unpicklable_error_keeps_its_text(form, texts):
    if form != "text":
        assert "Unpicklable: kept words" in texts["unpicklable"]
