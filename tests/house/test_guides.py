"""Files, names, rooms and words in the pages for developers exist."""

import ast
import re

import pytest

from house import test_layers
from house.test_docs import PAGES, ROOT

PACKAGE = ROOT / "pkg" / "gristmill"
CSRC = ROOT / "csrc"
GUIDES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in PAGES
    if path.name in ("CONTRIBUTING.md", "SECURITY.md", "architecture.md", "glossary.md")
    or path.parent.name in ("decisions", "formats")
}
# Build products, which a fresh clone does not have.
MADE = {"build/clients", "build/dev", ".venv-dev"}
OF_EACH_CLIENT = {"client.toml", "program.py"}
ROW = re.compile(r"^\| (.+\?) \| `(\S+)` \| `(\S+)` \|$", re.MULTILINE)
QUESTIONS = ROW.findall(GUIDES["CONTRIBUTING.md"])


def place(name):
    """Return the file or folder that a page names, or None."""
    for root in (ROOT, PACKAGE, CSRC):
        if (root / name).exists():
            return root / name
    return None


def defined(path, name):
    """Return whether a file defines a name; methods are written `Class.method`."""
    if path.suffix != ".py":
        return re.search(rf"\b{re.escape(name)}\b", path.read_text()) is not None
    body = ast.parse(path.read_text()).body
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        found = [n for n in body if isinstance(n, kinds) and n.name == part]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize("page", GUIDES)
def test_files_named_by_a_page_exist(page):
    text = re.sub(r"^```.*?^```$", "", GUIDES[page], flags=re.DOTALL | re.MULTILINE)
    named = re.findall(
        r"`([\w./-]+(?:/[\w.-]+|\.(?:py|pyx|hpp|cpp|md|toml|yml)))`", text
    )
    known = MADE | OF_EACH_CLIENT
    missing = [name for name in named if name not in known and place(name) is None]
    assert missing == []


def test_names_given_with_their_file_exist():
    given = re.compile(r"`([\w.]+)`(?: there)?\s+(?:of|in)\s+`([\w./]+\.\w+)`")
    pairs = [pair for text in GUIDES.values() for pair in given.findall(text)]
    assert len(pairs) > 5
    wrong = [
        f"{name} of {file}"
        for name, file in pairs
        if place(file) is None or not defined(place(file), name)
    ]
    assert wrong == []


def test_ten_questions_have_a_file_and_a_name():
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("file", "name"), [row[1:] for row in QUESTIONS])
def test_answer_to_a_question_exists(file, name):
    assert place(file) is not None, file
    assert defined(place(file), name), f"{file} has no {name}"


def test_five_words_are_defined_once_and_linked():
    glossary = GUIDES["docs/glossary.md"]
    five = re.findall(r"^### (\w+)$", glossary, re.MULTILINE)
    assert five == ["Unit", "Stream", "Slot", "Lease", "Launcher"]
    table = re.findall(r"^\| ([\w ]+) \| ", glossary, re.MULTILINE)
    others = [word for word in table if word != "word"]
    assert others == sorted(others)
    assert not {*others} & {word.lower() for word in five}
    for word in five:
        link = f"[{word.lower()}](glossary.md#{word.lower()})"
        assert link in GUIDES["docs/architecture.md"]


def test_architecture_lists_all_rooms():
    text = GUIDES["docs/architecture.md"]
    folders = [path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    rooms = {path.name for path in folders} | {
        f"_dataset/{path.parent.name}"
        for path in PACKAGE.glob("_dataset/*/__init__.py")
    }
    in_core = [path.name for path in (CSRC / "core").iterdir() if path.is_dir()]
    rooms |= {f"core/{name}" for name in in_core}
    assert {room for room in rooms if f"`{room}`" not in text} <= {"_dataset"}
    listed = re.findall(r"^\| `(core/\w+)` \|", text, re.MULTILINE)
    order = [room for room in test_layers.CPP_ROOMS if room.startswith("core/")]
    assert listed == order


def test_decisions_are_numbered_listed_and_uniform():
    index = GUIDES["docs/decisions/README.md"]
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    listed = re.findall(r"^\| (\d+) \| \[.+\]\((.+)\) \|$", index, re.MULTILINE)
    assert listed == [(str(int(path.name[:4])), path.name) for path in pages]
    for number, path in enumerate(pages, 1):
        text = path.read_text()
        assert path.name.startswith(f"{number:04}-")
        assert text.startswith(f"# {number}. ")
        headings = ["Context", "Decision", "What it costs", "Dropped"]
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == headings


def test_anchors_of_links_are_headings():
    for path in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", path.read_text()):
            page = path.parent / target if target else path
            headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
            slugs = [
                re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings
            ]
            assert anchor in slugs, f"{path.name}: {target}#{anchor}"
