"""All that is shown of measurements is made from one file, which keeps the rest."""

import importlib
import json
import re
from xml.etree import ElementTree

import pytest

from support.places import ROOT

FILES = sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a module of `benchmarks`."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def outcomes(benchmark):
    return benchmark("store").load()


def test_every_question_is_in_one_group(benchmark):
    listed = [f"bench_{name}" for name in benchmark("questions").QUESTIONS]
    assert sorted(listed) == FILES


def test_every_question_was_measured(benchmark, outcomes):
    assert tuple(outcomes) == benchmark("questions").QUESTIONS
    for name, outcome in outcomes.items():
        assert outcome.question.name == name
        assert set(outcome.about) == {
            *("command", "commit", "machine", "python", "packages", "date"),
            "load before",
        }


def test_every_page_says_what_was_measured_last(benchmark, outcomes):
    pages = benchmark("pages").written(outcomes)
    assert ROOT / "README.md" in pages
    assert ROOT / "docs" / "peers" / "torch.md" in pages
    for path, text in pages.items():
        assert path.read_text() == text, f"{path}: run `benchmarks/run.py --pages`"


@pytest.mark.parametrize("name", ["peers", "over-time", "first-batch", "record-sizes"])
def test_every_plot_shows_what_was_measured_last(benchmark, outcomes, name):
    plots = benchmark("plots")
    assert name in plots.PLOTS
    kept = (plots.FOLDER / f"{name}.svg").read_text()
    assert plots.digest(name, outcomes) in kept


def test_a_plot_is_a_picture_with_other_colors_in_the_dark(benchmark, outcomes):
    plots = benchmark("plots")
    text = plots.svg("first-batch", outcomes)
    root = ElementTree.fromstring(text)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"Gristmill", "Grain", "torch", "workers", "16"} <= set(texts)
    style = "".join(element.text or "" for element in root.iter(f"{SVG}style"))
    assert "@media (prefers-color-scheme: dark)" in style
    rest = text.partition("</style>")[2]
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", rest))
    assert plots.OURS in used
    # Matplotlib's own black is that of markers' edges and ticks, never drawn alone.
    assert used - {"#000000"} <= set(plots.IN_THE_DARK)


def outcome_of(benchmark, name, **runs):
    harness = benchmark("harness")
    question = benchmark("questions").question_of(name)
    about = {"command": "made up", "commit": "c0ffee", "machine": "2 cores"}
    about |= {"date": "2026-11-23", "load before": "0.1"}
    return harness.Outcome(question, runs, about=about)


def test_measuring_a_question_again_leaves_the_others_as_they_are(benchmark, tmp_path):
    store, path = benchmark("store"), tmp_path / "results.json"
    store.merge([outcome_of(benchmark, "map", gristmill=[1.0, 2.0])], path)
    store.merge([outcome_of(benchmark, "array", gristmill=[3.00000001])], path)
    store.merge([outcome_of(benchmark, "map", gristmill=[5.0])], path)
    runs = {name: outcome.runs for name, outcome in store.load(path).items()}
    assert runs == {"array": {"gristmill": [3.0]}, "map": {"gristmill": [5.0]}}
    assert store.load(path)["map"].about["commit"] == "c0ffee"
    assert list(json.loads(path.read_text())) == ["array", "map"]
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_the_last_line_names_questions_that_miss_a_target(benchmark):
    run = benchmark("run")
    met = outcome_of(benchmark, "array", gristmill=[1.0], torch=[50.0])
    assert run.last_line([met]) == "1 targets, 0 missed"
    missed = outcome_of(benchmark, "array", gristmill=[1.0], torch=[49.0])
    assert run.last_line([missed]) == "1 targets, 1 missed: array"
    nothing = outcome_of(benchmark, "array", gristmill=[1.0])
    assert nothing.verdicts() == [
        ("gristmill >= 50x as fast as torch", "-", "not measured: torch")
    ]
    assert run.last_line([nothing]) == "1 targets, 1 missed: array"


def test_a_peer_that_fails_is_told_and_fails_nothing_else(benchmark):
    run = benchmark("run")
    outcome = outcome_of(benchmark, "array", gristmill=[1.0], torch=[])
    outcome.failures = {"torch": "exit code 1: no CUDA"}
    assert run.unmeasured([outcome]) == {"array: torch": "exit code 1: no CUDA"}
    assert [run.status([outcome], strict) for strict in (False, True)] == [0, 1]


def test_gristmills_own_failure_and_answers_that_differ_fail_the_run(benchmark):
    run = benchmark("run")
    ours = outcome_of(benchmark, "array", torch=[50.0])
    ours.failures = {"gristmill": "no result within 600 s"}
    differ = outcome_of(benchmark, "array", gristmill=[1.0], torch=[50.0])
    differ.disagreements = ["records: torch got 1, gristmill got 2"]
    assert run.status([ours], strict=False) == 1
    assert run.status([differ], strict=False) == 1


def test_a_bound_has_its_unit(benchmark):
    outcome = outcome_of(benchmark, "import", gristmill=[149.0, 151.0, 90.0])
    assert outcome.verdicts() == [("gristmill <= 150 ms", "149", "pass")]


def test_a_group_says_how_each_question_was_measured(benchmark):
    outcome = outcome_of(benchmark, "array", gristmill=[1.0], torch=[60.0])
    text = benchmark("pages").group_table("Loaders", {"array": outcome})
    assert text.splitlines()[2:] == [
        "| [array](bench_array.py): a NumPy array as the source, shuffle, batch 256, "
        "0 workers | gristmill >= 50x as fast as torch | 60 | pass |",
        "",
        "Measured on 2026-11-23, 2 cores, commit c0ffee, load 0.1 before: `made up`.",
    ]
