"""Writes the measurements into pages, each table between two comments."""

import pathlib
import re
from collections.abc import Callable

import peer_pages
import plots
import store
from harness import Outcome, table
from questions import GROUPS

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
ALL_RUNS = HERE / "results.md"
PLACE = re.compile(r"(<!-- measured(?:: ([^\n]*))? -->\n).*?(<!-- end -->)", re.DOTALL)
HOW = "{date}, {machine}, commit {commit}, load {load before} before: `{command}`"


def group_table(group: str, outcomes: dict[str, Outcome]) -> str:
    """Returns the targets of a group's questions, and how they were measured."""
    lines = ["| question | target | found | verdict |", "|---|---|---|---|"]
    how: dict[str, list[str]] = {}
    for name in GROUPS[group].split():
        if name not in outcomes:
            continue
        outcome = outcomes[name]
        rows = outcome.verdicts() or [("", "-", "no target")]
        text = f"[{name}](bench_{name}.py): {outcome.question.text}"
        for row in rows:
            lines.append(f"| {text} | {' | '.join(row)} |")
            text = ""
        about = outcome.about
        said = (
            "{date}, {machine}, commit {commit}, load {load before} before".format_map
        )
        how.setdefault(f"{said(about)}: `{about['command']}`", []).append(name)
    for said, names in how.items():
        which = "" if len(how) == 1 else f" ({', '.join(names)})"
        lines += ["", f"Measured on {said}{which}."]
    return "\n".join(lines) + "\n"


def all_runs(outcomes: dict[str, Outcome]) -> str:
    """Returns every run of every contestant."""
    lines = ["# Every run", "", "[README.md](README.md) says how it is measured.", ""]
    for outcome in outcomes.values():
        about = "".join(f"- {key}: {text}\n" for key, text in outcome.about.items())
        lines += [table(outcome), about]
    return "\n".join(lines)


def filled(text: str, section: Callable[[str], str]) -> str:
    """Returns a page with the section of each place, chosen by the place's comment."""
    return PLACE.sub(
        lambda place: f"{place[1]}\n{section(place[2] or '')}\n{place[3]}", text
    )


def written(outcomes: dict[str, Outcome]) -> dict[pathlib.Path, str]:
    """Returns the text that each page should have."""
    own, project = HERE / "README.md", ROOT / "README.md"
    speed = ROOT / "docs" / "speed.md"
    first = peer_pages.front_table(outcomes, peer_pages.SHOWN_FIRST)
    pages = {
        ALL_RUNS: all_runs(outcomes),
        own: filled(own.read_text(), lambda group: group_table(group, outcomes)),
        project: filled(project.read_text(), lambda _: first),
        speed: filled(speed.read_text(), lambda _: peer_pages.front_table(outcomes)),
    }
    for name in peer_pages.PAGES:
        path = peer_pages.FOLDER / f"{name}.md"
        section = peer_pages.section_of(name, outcomes)
        pages[path] = filled(path.read_text(), lambda _, section=section: section)
    return pages


def write() -> None:
    """Writes all pages, and draws the plots."""
    outcomes = store.load()
    for path, text in written(outcomes).items():
        path.write_text(text)
    plots.write(outcomes)
