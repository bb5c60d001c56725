"""Each claim of the documents is named by a test, in `@pytest.mark.claim(text)`.

A claim is an item of "Guarantees" in docs/guarantees.md, named by its bold words; an
item of "Limits" there, named by its first sentence; or a row of the tables of
differences in docs/differences-from-grain.md, named by its first cell. The text of the
marker is on one line, without backticks and without the addresses of links.
"""

import ast
import pathlib
import re
from collections.abc import Iterator

from support.places import ROOT


def plain(text: str) -> str:
    """Return text on one line, without backticks and the addresses of links."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(text.replace("`", "").split())


def section(document: str, title: str) -> str:
    """Return what is below the heading, up to the next one of its level."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", document, re.M | re.S)[1]


def item_names(text: str) -> list[str]:
    """Return the bold words with which the items of a list begin."""
    return re.findall(r"^- \*\*(.*?)\.\*\*", text, re.M)


def first_sentences(text: str) -> list[str]:
    """Return the first sentence of each item of a list."""
    found = re.findall(r"^- (.*(?:\n .*)*)", text, re.M)
    return [re.split(r"(?<=\.) ", plain(item))[0] for item in found]


def first_cells(text: str) -> list[str]:
    """Return the first cell of each row of all tables, without their headings."""
    bodies = re.findall(r"^\| --- .*\n((?:\| .*\n)+)", text, re.M)
    rows = [row for body in bodies for row in body.splitlines()]
    return [plain(row.split(" | ")[0].removeprefix("| ")) for row in rows]


def all_claims(root: pathlib.Path) -> list[str]:
    """Return the claims of the documents below root."""
    guarantees = (root / "docs/guarantees.md").read_text()
    differences = (root / "docs/differences-from-grain.md").read_text()
    return [
        *item_names(section(guarantees, "Guarantees")),
        *first_sentences(section(guarantees, "Limits")),
        *first_cells(differences.partition("## Settings in workers")[0]),
    ]


def named_claims(root: pathlib.Path) -> Iterator[str]:
    """Yield the texts of all markers below root, in functions, classes and modules."""
    for file in root.glob("tests/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == (
                "pytest.mark.claim"
            ):
                (text,) = node.args
                yield ast.literal_eval(text)


def faults(root: pathlib.Path) -> tuple[list[str], list[str]]:
    """Return the claims without a test, and the marker texts without a claim."""
    claims, named = all_claims(root), set(named_claims(root))
    unnamed = [claim for claim in claims if claim not in named]
    return unnamed, sorted(named.difference(claims))


def test_each_claim_has_a_test_and_each_marker_a_claim():
    assert faults(ROOT) == ([], [])


def test_claims_have_different_texts():
    claims = all_claims(ROOT)
    assert sorted(set(claims)) == sorted(claims)


GUARANTEES = """
## Guarantees

- **Order.** It is `kept`. Nothing
  is [lost](docs/x.md).
- **Files.** Not a word is wrong.

These are not claims.

## Limits

- One at a
  `time`. Always.
"""
DIFFERENCES = """
| Grain | Gristmill |
| --- | --- |
| a `None` fails | it passes |
| two notes | one |

## Settings in workers

| library | settings |
| --- | --- |
| JAX | all |
"""
TESTS = """
import pytest

pytestmark = pytest.mark.claim("Order")


@pytest.mark.claim("two notes")
@pytest.mark.claim("an unknown " "claim")
class TestNotes:
    @pytest.mark.parametrize(
        "x", [pytest.param(1, marks=pytest.mark.claim("JAX"))]
    )
    def test_one(self, x):
        pass

    @pytest.mark.claim("One at a time.")
    def test_two(self):
        pass
"""


def test_untested_claims_and_unknown_texts_are_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests" / "below").mkdir(parents=True)
    (tmp_path / "docs/guarantees.md").write_text(GUARANTEES)
    (tmp_path / "docs/differences-from-grain.md").write_text(DIFFERENCES)
    (tmp_path / "tests/below/test_x.py").write_text(TESTS)
    assert faults(tmp_path) == (["Files", "a None fails"], ["JAX", "an unknown claim"])
