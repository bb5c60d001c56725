"""All pages and plots of measurements are made from one file of results."""

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
    """Return a function that imports a module of `benchmarks`."""
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


def test_every_page_shows_the_latest_results(benchmark, outcomes):
    pages = benchmark("pages").page_texts(outcomes)
    assert ROOT / "README.md" in pages
    assert ROOT / "docs" / "peers" / "torch.md" in pages
    for path, text in pages.items():
        assert path.read_text() == text, f"{path}: run `benchmarks/run.py --pages`"


@pytest.mark.parametrize("name", ["peers", "over-time", "first-batch", "record-sizes"])
def test_every_plot_shows_the_latest_results(benchmark, outcomes, name):
    plots = benchmark("plots")
    assert name in plots.PLOTS
    kept = (plots.FOLDER / f"{name}.svg").read_text()
    assert plots.digest(name, outcomes) in kept


def test_plot_has_other_colors_in_dark_mode(benchmark, outcomes):
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
    # Matplotlib draws edges of markers and ticks in black, but never black alone.
    assert used - {"#000000"} <= set(plots.DARK_COLORS)


def outcome_of(benchmark, name, **runs):
    harness = benchmark("harness")
    question = benchmark("questions").question_of(name)
    about = {"command": "made up", "commit": "c0ffee", "machine": "2 cores"}
    about |= {"date": "2026-11-23", "load before": "0.1"}
    return harness.Outcome(question, runs, about=about)


def test_measuring_one_question_keeps_other_results(benchmark, tmp_path):
    store, path = benchmark("store"), tmp_path / "results.json"
    store.merge([outcome_of(benchmark, "map", gristmill=[1.0, 2.0])], path)
    store.merge([outcome_of(benchmark, "array", gristmill=[3.00000001])], path)
    store.merge([outcome_of(benchmark, "map", gristmill=[5.0])], path)
    runs = {name: outcome.runs for name, outcome in store.load(path).items()}
    assert runs == {"array": {"gristmill": [3.0]}, "map": {"gristmill": [5.0]}}
    assert store.load(path)["map"].about["commit"] == "c0ffee"
    assert list(json.loads(path.read_text())) == ["array", "map"]
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_last_line_names_questions_with_missed_targets(benchmark):
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


def test_failing_peer_is_reported_and_fails_only_strict(benchmark):
    run = benchmark("run")
    outcome = outcome_of(benchmark, "array", gristmill=[1.0], torch=[])
    outcome.failures = {"torch": "exit code 1: no CUDA"}
    assert run.unmeasured([outcome]) == {"array: torch": "exit code 1: no CUDA"}
    assert [run.status([outcome], strict) for strict in (False, True)] == [0, 1]


def test_gristmill_failure_or_disagreement_fails_the_run(benchmark):
    run = benchmark("run")
    ours = outcome_of(benchmark, "array", torch=[50.0])
    ours.failures = {"gristmill": "no result within 600 s"}
    differ = outcome_of(benchmark, "array", gristmill=[1.0], torch=[50.0])
    differ.disagreements = ["records: torch got 1, gristmill got 2"]
    assert run.status([ours], strict=False) == 1
    assert run.status([differ], strict=False) == 1


def test_bound_has_its_unit(benchmark):
    outcome = outcome_of(benchmark, "import", gristmill=[149.0, 151.0, 90.0])
    assert outcome.verdicts() == [("gristmill <= 150 ms", "149", "pass")]


def test_group_page_states_how_questions_were_measured(benchmark):
    outcome = outcome_of(benchmark, "array", gristmill=[1.0], torch=[60.0])
    text = benchmark("pages").group_table("Loaders", {"array": outcome})
    assert text.splitlines()[2:] == [
        "| [array](bench_array.py): a NumPy array as the source, shuffle, batch 256, "
        "0 workers | gristmill >= 50x as fast as torch | 60 | pass |",
        "",
        "Measured on 2026-11-23, 2 cores, commit c0ffee, load 0.1 before: `made up`.",
    ]
