"""Progress is shown where somebody watches, and costs nothing elsewhere."""

import io
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from faults.scripts import environment
from gristmill._base import progress_bar
from support.waiting import started_since


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress_bar, "on_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # So that rich believes it.


@pytest.fixture
def notebook(monkeypatch):
    shell = SimpleNamespace(kernel=object())
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_nothing_is_shown_where_nobody_watches(capsys):
    bar = progress_bar.new_display()
    bar.begin("records", 10)
    bar.advance(5)
    bar.end()
    assert type(bar) is progress_bar.Progress
    assert capsys.readouterr() == ("", "")


def test_rich_draws_on_a_terminal_without_a_thread(terminal, capsys):
    pytest.importorskip("rich")
    before = set(threading.enumerate())
    bar = progress_bar.new_display()
    bar.begin("inputs counted", 3)
    bar.begin("records", 2000, 500)
    bar.advance(500)
    assert not started_since(before)
    bar.end()
    assert type(bar) is progress_bar.RichBar
    assert "1,000/2,000 records" in capsys.readouterr().err


def test_a_bar_of_rich_that_never_began_ends_in_silence(terminal, capsys):
    pytest.importorskip("rich")
    progress_bar.new_display().end()
    assert capsys.readouterr().err == ""


def test_a_terminal_without_rich_has_plain_text(terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    assert type(progress_bar.new_display()) is progress_bar.Bar


def test_a_notebook_has_plain_text(notebook):
    assert type(progress_bar.new_display()) is progress_bar.Bar


def test_ipython_on_a_pipe_has_none(monkeypatch):
    shell = SimpleNamespace()
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert type(progress_bar.new_display()) is progress_bar.Progress


def test_a_shorter_line_leaves_nothing_of_a_longer_one():
    out = io.StringIO()
    line = progress_bar.Line(out)
    line.show("longer")
    line.show("short")
    line.clear()
    assert out.getvalue() == "\rlonger\rshort \r     \r"


@pytest.mark.multiprocess
def test_importing_gristmill_imports_nothing_of_it():
    code = (
        "import sys, gristmill; "
        "print([n for n in ('rich', 'gristmill._cli', 'gristmill._base.progress_bar')"
        " if n in sys.modules])"
    )
    found = subprocess.check_output(
        [sys.executable, "-c", code], text=True, env=environment()
    )
    assert found == "[]\n"
