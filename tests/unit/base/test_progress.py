"""Progress is shown on terminals and in notebooks, and costs nothing elsewhere."""

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
    monkeypatch.setenv("FORCE_COLOR", "1")  # Makes rich detect a terminal.


@pytest.fixture
def notebook(monkeypatch):
    shell = SimpleNamespace(kernel=object())
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_nothing_is_shown_without_a_terminal(capsys):
    bar = progress_bar.new_display()
    bar.begin("records", 10)
    bar.advance(5)
    bar.end()
    assert type(bar) is progress_bar.Progress
    assert capsys.readouterr() == ("", "")


def test_rich_draws_on_terminal_without_a_thread(terminal, capsys):
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


def test_unstarted_rich_bar_prints_nothing(terminal, capsys):
    pytest.importorskip("rich")
    progress_bar.new_display().end()
    assert capsys.readouterr().err == ""


def test_terminal_without_rich_gets_plain_text(terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    assert type(progress_bar.new_display()) is progress_bar.Bar


def test_notebook_gets_plain_text(notebook):
    assert type(progress_bar.new_display()) is progress_bar.Bar


def test_ipython_on_a_pipe_gets_no_bar(monkeypatch):
    shell = SimpleNamespace()
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert type(progress_bar.new_display()) is progress_bar.Progress


def test_shorter_line_overwrites_longer_line():
    out = io.StringIO()
    line = progress_bar.Line(out)
    line.show("longer")
    line.show("short")
    line.clear()
    assert out.getvalue() == "\rlonger\rshort \r     \r"


@pytest.mark.multiprocess
def test_importing_gristmill_does_not_import_progress():
    code = (
        "import sys, gristmill; "
        "print([n for n in ('rich', 'gristmill._cli', 'gristmill._base.progress_bar')"
        " if n in sys.modules])"
    )
    found = subprocess.check_output(
        [sys.executable, "-c", code], text=True, env=environment()
    )
    assert found == "[]\n"
