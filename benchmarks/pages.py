"""Writes the measurements into pages, each table between two comments."""

import pathlib
import re
from collections.abc import Callable

import peer_pages
import plots
import store
from harness import Outcome, Verdict, table
from questions import GROUPS

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
ALL_RUNS = HERE / "results.md"
PLACE = re.compile(r"(<!-- measured(?:: ([^\n]*))? -->\n).*?(<!-- end -->)", re.DOTALL)
CIRCUMSTANCES = (
    "{date}, {machine}, commit {commit}, load {load before} before: `{command}`"
)


def group_table(group: str, outcomes: dict[str, Outcome]) -> str:
    """Returns the targets of a group's questions, and how they were measured."""
    lines = ["| question | target | found | verdict |", "|---|---|---|---|"]
    # Maps the circumstances of a measurement to the questions measured then.
    questions: dict[str, list[str]] = {}
    for name in GROUPS[group].split():
        if name not in outcomes:
            continue
        outcome = outcomes[name]
        rows = outcome.verdicts() or [Verdict("", "-", "no target")]
        text = f"[{name}](bench_{name}.py): {outcome.question.text}"
        for row in rows:
            lines.append(f"| {text} | {' | '.join(row)} |")
            text = ""
        circumstances = CIRCUMSTANCES.format_map(outcome.about)
        questions.setdefault(circumstances, []).append(name)
    for circumstances, names in questions.items():
        suffix = "" if len(questions) == 1 else f" ({', '.join(names)})"
        lines += ["", f"Measured on {circumstances}{suffix}."]
    return "\n".join(lines) + "\n"


def all_runs(outcomes: dict[str, Outcome]) -> str:
    """Returns every run of every contestant."""
    lines = [
        "# Every run",
        "",
        "[Benchmarks](README.md) explains the measurements.",
        "",
    ]
    for outcome in outcomes.values():
        about = "".join(f"- {key}: {text}\n" for key, text in outcome.about.items())
        lines += [table(outcome), about]
    return "\n".join(lines)


def fill_places(text: str, section: Callable[[str], str]) -> str:
    """Returns a page with the section of each place, chosen by the place's comment."""
    return PLACE.sub(
        lambda place: f"{place[1]}\n{section(place[2] or '')}\n{place[3]}", text
    )


def page_texts(outcomes: dict[str, Outcome]) -> dict[pathlib.Path, str]:
    """Returns the text that each page should have."""
    own, project = HERE / "README.md", ROOT / "README.md"
    speed = ROOT / "docs" / "speed.md"
    short_table = peer_pages.front_table(outcomes, peer_pages.README_QUESTIONS)
    pages = {
        ALL_RUNS: all_runs(outcomes),
        own: fill_places(own.read_text(), lambda group: group_table(group, outcomes)),
        project: fill_places(project.read_text(), lambda _: short_table),
        speed: fill_places(
            speed.read_text(), lambda _: peer_pages.front_table(outcomes)
        ),
    }
    for name in peer_pages.PAGES:
        path = peer_pages.FOLDER / f"{name}.md"
        section = peer_pages.section_of(name, outcomes)
        pages[path] = fill_places(path.read_text(), lambda _, section=section: section)
    return pages


def write() -> None:
    """Writes all pages, and draws the plots."""
    outcomes = store.load()
    for path, text in page_texts(outcomes).items():
        path.write_text(text)
    plots.write(outcomes)
