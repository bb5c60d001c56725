"""Each page about another loader is listed, and has what was measured of both."""

import importlib
import re

import pytest

from support.places import ROOT

PAGES = ROOT / "docs" / "peers"
TABLES = (ROOT / "benchmarks" / "README.md").read_text()


@pytest.fixture
def peer_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("peer_pages")


def test_every_page_is_listed_and_has_its_loaders_names(peer_pages):
    listed = re.findall(
        r"\| \[(\S+)\.md\]\(\1\.md\) \|", (PAGES / "README.md").read_text()
    )
    assert sorted(listed) == sorted(peer_pages.NAMES)
    assert {f"{name}.md" for name in listed} | {"README.md"} == {
        path.name for path in PAGES.iterdir()
    }


@pytest.mark.parametrize(
    "path", sorted(PAGES.glob("[a-z]*.md")), ids=lambda path: path.stem
)
def test_a_page_has_the_figures_of_the_benchmarks(peer_pages, path):
    text = path.read_text()
    assert peer_pages.with_section(text, path.stem, TABLES) == text
    assert peer_pages.rows_of(path.stem, TABLES)


def test_a_row_of_the_benchmarks_becomes_one_of_each_loader_that_it_names(peer_pages):
    tables = (
        "| getitem | gristmill >= 5x as fast as grain default or torch | 146.2 | x |\n"
        "| images | gristmill >= 0.7x as fast as bare | 0.933 | pass |\n"
        "| memory | gristmill 4w <= 1.5x gristmill 0w | 1.39 | pass |\n"
    )
    expected = [("getitem", "gristmill", "grain default or torch", "146.2")]
    assert peer_pages.rows_of("grain", tables) == expected
    assert peer_pages.rows_of("torch", tables) == expected
    assert peer_pages.rows_of("spdl", tables) == []
    assert peer_pages.section_of("torch", tables).splitlines()[2:] == [
        "| in-memory source by __getitem__, shuffle, batch 256, 0 workers | gristmill"
        " | grain default or torch | 146 |"
    ]
