"""Budgets of instructions: which costs exceed one, and who may raise it."""

import importlib
import json

import pytest

from support.places import ROOT


@pytest.fixture
def costs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("costs")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1030, []),
        (1031, ["a takes 1,031 instructions, +3.1% of its budget of 1,000"]),
        (500, []),
    ],
)
def test_cost_three_percent_above_budget_is_an_excess(costs, count, expected):
    assert costs.over_budget({"a": count}, {"a": costs.Budget(1000)}) == expected


def test_path_without_a_budget_is_an_excess(costs):
    assert costs.over_budget({"a": 1}, {}) == ["a has no budget: run with --update a"]


def test_budget_is_raised_only_with_a_reason(costs):
    budgets = {"a": costs.Budget(1000, ("900 to 1,000: names",)), "b": costs.Budget(7)}
    with pytest.raises(ValueError, match="--bought"):
        costs.update_budgets({"a": 1200}, budgets, None)
    found = costs.update_budgets({"a": 1200}, budgets, "indices beyond 64 bits")
    bought = ("900 to 1,000: names", "1,000 to 1,200: indices beyond 64 bits")
    assert found == {"a": costs.Budget(1200, bought), "b": costs.Budget(7)}


def test_budget_is_lowered_without_a_reason(costs):
    found = costs.update_budgets({"a": 900}, {"a": costs.Budget(1000)}, None)
    assert found == {"a": costs.Budget(900)}


def test_budgets_are_read_as_written(costs, tmp_path):
    budgets = {"a": costs.Budget(1), "b": costs.Budget(2, ("1 to 2: order",))}
    costs.write(budgets, tmp_path / "costs.json")
    assert costs.read(tmp_path / "costs.json") == budgets


def test_each_path_has_a_budget(costs):
    # The module is not imported, because it fixes the clocks of its process.
    text = (ROOT / "benchmarks" / "cost_paths.py").read_text()
    names = [
        line.split("(")[0].removeprefix("def ")
        for before, line in zip(text.splitlines(), text.splitlines()[1:], strict=False)
        if before.startswith("@path(")
    ]
    assert sorted(names) == sorted(json.loads(costs.BUDGETS.read_text())["budgets"])
    assert len(names) >= 20
