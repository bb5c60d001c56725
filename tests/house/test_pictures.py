"""Pictures in the docs have colors for light and dark, and terminals look like ones."""

import importlib
import re
from xml.etree import ElementTree

import pytest

from support.places import ROOT

PICTURES = sorted(ROOT.glob("docs/p*/*.svg"))
TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture
def terminals(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    return importlib.import_module("terminal_pictures")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_picture_has_light_and_dark_colors_and_is_shown(path):
    text = path.read_text()
    assert ElementTree.fromstring(text).get("viewBox")
    assert "@media (prefers-color-scheme: dark)" in text
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    link = re.compile(rf"!\[[^]]+\]\(\S*{path.parent.name}/{path.name}\)")
    assert any(link.search(page.read_text()) for page in pages)


def test_escape_sequences_become_styles(terminals):
    assert terminals.styled_lines("a\x1b[1mb\x1b[33mc\x1b[0md\n\ne\x1b[K", 80) == [
        [("a", ()), ("b", ("1",)), ("c", ("1", "33")), ("d", ())],
        [],
        [("e", ())],
    ]


def test_long_lines_continue_on_the_next(terminals):
    assert terminals.styled_lines("ab\x1b[31mcdefg\x1b[0m", 3) == [
        [("ab", ()), ("c", ("31",))],
        [("def", ("31",))],
        [("g", ("31",))],
    ]


def test_picture_of_a_terminal_shows_its_text_in_columns(terminals):
    svg = ElementTree.fromstring(terminals.picture_of("top", "a\n  <b>  ", 80))
    texts = [(text.text, text.get("x")) for text in svg.iter(TEXT)]
    assert texts == [("a", "16.0"), ("<b>", "30.4")]


def test_command_prints_to_a_terminal_of_the_given_size(terminals, tmp_path):
    code = "import shutil, sys; print(sys.stdout.isatty(), *shutil.get_terminal_size())"
    command = [terminals.sys.executable, "-c", code]
    assert terminals.run_in_terminal(command, 70, tmp_path) == "True 70 40\n"
