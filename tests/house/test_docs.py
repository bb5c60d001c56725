"""Every block of code in the README and the documents runs unchanged.

A block is fenced and names its language: ``python`` and ``sh`` blocks run, and a
``text`` or ``diff`` block is only shown. An HTML comment before a ``sh`` block that
installs or builds gives the reason why the tests do not run it.
"""

import os
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

import pytest

from support import extras
from support.places import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
TEXTS = [path.relative_to(ROOT).as_posix() for path in PAGES]
INSTALL = "docs/install.md"
NOT_RUN = "<!-- Not run by the tests: "
FENCE = re.compile(
    rf"^({re.escape(NOT_RUN)}[^\n]* -->\n)?```([^\n]*)\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# Blocks that show output, a drawing, or a change of a user's program.
SHOWN = {"text", "diff"}
# Commands that only blocks that are not run may use.
BUILDS = {
    *(".", "gdb", "make", "pip", "python3", "sudo"),
    *(f".venv-dev/bin/{name}" for name in ("cmake", "py-spy", "python")),
    "build/dev/tests/core/test_permute",
}
# Commands that blocks that are run may use.
COMMANDS = {"gristmill", "printf"}


class Block(NamedTuple):
    note: str
    language: str
    code: str

    @property
    def runs(self):
        return self.language not in SHOWN and not self.note

    def commands(self):
        """Return the words of each command of a shell block."""
        whole = self.code.replace("\\\n", "")
        lines = whole.replace(" && ", "\n").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks_of(text):
    return [Block(*found) for found in FENCE.findall((ROOT / text).read_text())]


def as_program(blocks):
    """Join the blocks into one program, so that later ones use earlier ones."""
    parts = ["import subprocess as _subprocess"]
    for block in blocks:
        if block.language == "python":
            parts.append(block.code)
        else:
            command = ["bash", "-euo", "pipefail", "-c", block.code]
            parts.append(f"_subprocess.run({command!r}, check=True)")
    return "\n".join(parts)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return an empty working folder, with `gristmill` on the PATH."""
    commands = tmp_path / "bin"
    commands.mkdir()
    command = commands / "gristmill"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gristmill "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=os.pathsep)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "text", [text for text in TEXTS if any(block.runs for block in blocks_of(text))]
)
def test_every_block_runs_in_a_fresh_folder(elsewhere, text):
    blocks = [block for block in blocks_of(text) if block.runs]
    # The program is outside the folder, which is as empty as the reader's.
    program = elsewhere.parent / "program.py"
    program.write_text(as_program(blocks))
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", TEXTS)
def test_every_block_names_its_language(text):
    blocks = blocks_of(text)
    assert {block.language for block in blocks} <= {"python", "sh", *SHOWN}
    outside = FENCE.sub("", (ROOT / text).read_text())
    assert "```" not in outside
    # Indented blocks have no language; in a list, indented text is not a block.
    assert re.findall(r"\n\n {4,}[^\n]+", outside) == []


@pytest.mark.parametrize("text", TEXTS)
def test_only_installing_or_building_blocks_are_not_run(text):
    for block in blocks_of(text):
        if block.language == "text":
            first = block.code.split(maxsplit=1)[0]
            assert first not in {*COMMANDS, *BUILDS, "import", "from"}
        if block.language != "sh":
            assert not block.note
            continue
        commands = {words[0] for words in block.commands()}
        assert commands and commands <= (COMMANDS if block.runs else BUILDS)


def installs():
    """Return the blocks of docs/install.md that install a release and a clone."""
    found = [block for block in blocks_of(INSTALL) if "pip install" in block.code]
    assert len(found) == 2
    return found


@pytest.mark.parametrize("text", ["README.md", INSTALL])
def test_page_lists_packages_needed_to_build(text):
    (packages,) = (
        words[3:]
        for block in blocks_of(text)
        if block.language == "sh"
        for words in block.commands()
        if words[:2] == ["sudo", "apt-get"]
    )
    known = (ROOT / ".ci" / "system-packages").read_text()
    named = re.findall(r"(?:packages |h:)(g\+\+|z?lib\w+-dev|python3-\w+)", known)
    assert sorted(packages) == sorted({*named})


def test_install_page_lists_every_extra():
    table = (ROOT / INSTALL).read_text().partition("| extra | for |")[2]
    rows = re.findall(r"^\| (`.*?) \|", table.partition("\n\n")[0], re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))
    of_developers = {"bench", "clients", "demo", "dev", "docs", "lint", "test", "wheel"}
    there = set(extras.PROJECT["optional-dependencies"])
    assert len(named) == len({*named})
    assert {*named} == there - of_developers
    for place, block in zip((r"\.", "gristmill"), reversed(installs()), strict=True):
        (wanted,) = re.findall(rf"pip install '{place}\[(.*)\]'", block.code)
        assert {*wanted.split(",")} <= {*named}


@pytest.mark.parametrize("text", TEXTS)
def test_links_lead_somewhere(text):
    file = ROOT / text
    for target in re.findall(r"\]\(([^)#]+)\)", file.read_text()):
        assert "://" in target or (file.parent / target).exists(), target


@pytest.mark.parametrize("text", TEXTS)
def test_link_texts_are_not_names_of_pages(text):
    assert re.findall(r"\[[^]]*\.md`?\]\(", (ROOT / text).read_text()) == []
