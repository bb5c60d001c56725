"""Each page about another loader is listed and has measurements of both loaders."""

import importlib
import re

import pytest

from support.places import ROOT

PAGES = ROOT / "docs" / "peers"


@pytest.fixture
def peer_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("peer_pages")


def outcome_of(name, **runs):
    harness, questions = map(importlib.import_module, ("harness", "questions"))
    runs = {contestant.replace("_", " "): [value] for contestant, value in runs.items()}
    return {name: harness.Outcome(questions.question_of(name), runs)}


def test_every_page_is_listed_and_names_its_loaders(peer_pages):
    listed = re.findall(
        r"\| \[[^]]+ and Gristmill\]\((\S+)\.md\) \|",
        (PAGES / "README.md").read_text(),
    )
    assert sorted(listed) == sorted(peer_pages.PAGES)
    assert {f"{name}.md" for name in listed} | {"README.md"} == {
        path.name for path in PAGES.iterdir()
    }
    named = [loader for loaders in peer_pages.PAGES.values() for loader in loaders]
    assert set(named) | {"by hand"} == set(peer_pages.LOADERS)


def test_every_page_compares_something(peer_pages):
    outcomes = importlib.import_module("store").load()
    for page in peer_pages.PAGES:
        assert peer_pages.compared_with(page, outcomes)


def test_target_is_a_row_of_each_loader_it_names(peer_pages):
    outcomes = outcome_of(
        "getitem", gristmill=2.0, grain_default=900.0, torch=20.0, spdl=14.0
    )
    outcomes["getitem"].runs["grain (0, 0)"] = [292.3]
    text = "in-memory source by `__getitem__`, shuffle, batch 256, 0 workers"
    assert peer_pages.compared_with("grain", outcomes) == [
        (text, "gristmill", "grain (0, 0)", "146")
    ]
    assert peer_pages.section_of("torch", outcomes).splitlines()[2:] == [
        f"| {text} | gristmill | torch | 10 |"
    ]
    assert peer_pages.compared_with("dali", outcomes) == []


def test_target_of_several_loaders_compares_the_pages_own(
    peer_pages,
):
    outcomes = outcome_of("jpeg_normalized", gristmill=2.0, dali=3.0, torch=4.0)
    text = outcomes["jpeg_normalized"].question.text
    assert peer_pages.compared_with("torch", outcomes) == [
        (text, "gristmill", "torch", "2")
    ]


def test_loader_without_a_target_is_compared(peer_pages):
    outcomes = outcome_of("over_time", gristmill=2.0, grain_default=9.0, spdl=1.5)
    assert peer_pages.compared_with("spdl", outcomes) == [
        (outcomes["over_time"].question.text, "gristmill", "spdl", "0.75")
    ]


def test_unmeasured_question_has_no_row(peer_pages):
    outcomes = outcome_of("jpeg", gristmill=2.0)
    assert peer_pages.compared_with("torch", outcomes) == []


def test_shares_are_not_compared(peer_pages):
    outcomes = outcome_of("watching", gristmill=0.5, torch=0.1)
    assert peer_pages.compared_with("torch", outcomes) == []


def test_row_has_the_best_of_each_loader(peer_pages):
    outcomes = outcome_of("getitem", gristmill=2.0, grain_default=900.0, torch=1.0)
    outcomes["getitem"].runs["grain (0, 0)"] = [292.3]
    assert peer_pages.front_table(outcomes).splitlines()[2:] == [
        "| objects in memory | 2 ns/record | Grain 146x, torch 0.5x |"
    ]


def test_row_compares_equal_worker_counts(peer_pages):
    outcomes = outcome_of(
        "first_batch", gristmill_1w=9.0, gristmill_2w=2.0, torch_1w=1.0, torch_2w=3.0
    )
    assert peer_pages.front_table(outcomes).splitlines()[2:] == [
        "| first batch, 2 workers | 2 s | torch 1.5x |"
    ]
