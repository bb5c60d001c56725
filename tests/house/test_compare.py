"""Comparing two commits by pairs of runs, and the rule for a slowdown."""

import importlib

import pytest

from support.places import ROOT


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("compare")


@pytest.mark.parametrize(
    ("ratios", "is_loss"),
    [
        ([1.2] * 7, True),
        ([1.11, 1.3, 1.2, 0.9, 1.4, 1.12, 1.5], True),  # One of seven disagrees.
        ([1.11, 1.3, 1.2, 0.9, 1.4, 0.8, 1.5], False),  # Two disagree.
        ([1.09] * 7, False),
        ([1.0, 1.0, 1.0, 1.2, 1.2, 1.0, 1.0], False),
        ([0.5] * 7, False),
        ([1.2, 0.9, 1.3], False),  # None of three may disagree.
        ([], False),
    ],
)
def test_loss_is_a_tenth_in_the_median_if_pairs_agree(compare, ratios, is_loss):
    pairs = tuple((10.0, 10.0 * ratio) for ratio in ratios)
    assert compare.Comparison("map: gristmill", pairs).is_loss is is_loss


def test_every_other_pair_is_measured_in_reverse(compare, monkeypatch):
    question = importlib.import_module("bench_array").QUESTION
    asked = []

    def measure(question, contestant, settings, package):
        asked.append((question.name, contestant, package))
        return importlib.import_module("harness").Measurement(len(asked))

    monkeypatch.setattr(compare, "measure", measure)
    found = compare.compare(question, "gristmill", ("before", "now"), None, 3)
    turns = ["before", "now", "now", "before", "before", "now"]
    assert asked == [("array", "gristmill", turn) for turn in turns]
    assert found.pairs == ((1, 2), (4, 3), (5, 6))
    assert str(found) == "| array: gristmill | 4 | 3 | 1.20 (0.75 to 2.00) | ok |"


@pytest.fixture
def measured(compare, monkeypatch):
    """Replace build and measure; return the builds and the `values` to measure."""
    built, values = [], {"before": 1.0, "now": 1.0}

    def measure(question, contestant, settings, package):
        if values[package.name] is None:
            raise RuntimeError("exit code 1: no such name")
        value = values[package.name]
        return importlib.import_module("harness").Measurement(value)

    monkeypatch.setattr(compare, "measure", measure)
    monkeypatch.setattr(compare, "build", lambda *what: built.append(what))
    names = {"stash": "c0ffee", "rev-parse": "beef"}
    monkeypatch.setattr(compare, "git", lambda verb, *_: names[verb])
    monkeypatch.setattr("sys.argv", ["compare.py", "main", "--only", "array"])
    return built, values


def test_commit_is_compared_with_the_current_checkout(compare, measured, capsys):
    built, _ = measured
    assert compare.main() == 0
    assert [(commit, tree.name) for commit, tree in built] == [
        ("beef", "before"),
        ("c0ffee", "now"),
    ]
    said = capsys.readouterr().out
    assert "| array: gristmill | 1 | 1 | 1.00 (1.00 to 1.00) | ok |" in said


def test_loss_above_a_tenth_exits_with_1(compare, measured, capsys):
    measured[1]["now"] = 1.2
    assert compare.main() == 1
    said = capsys.readouterr().out
    assert "| array: gristmill | 1 | 1.2 | 1.20 (1.20 to 1.20) | SLOWER |" in said


def test_question_unknown_to_the_commit_is_not_a_loss(compare, measured, capsys):
    measured[1]["before"] = None
    assert compare.main() == 0
    said = capsys.readouterr().out
    assert "not measured: before: exit code 1: no such name |" in said
