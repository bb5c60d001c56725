"""Each claim of the documents is named by a test, in `@pytest.mark.claim(text)`.

A claim is a sentence of README's "Guarantees", an item of its "Limits" or of "What
differs" in docs/torch.md, or a row of a table in docs/differences-from-grain.md or in
"What is exact" of docs/scale.md. The text of the marker is that sentence, the item's
first sentence, or the row's first cell, on one line, without backticks and links'
addresses. The tests of a text fail if the whole sentence, item or row is not true.
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


def items(text: str) -> list[str]:
    """Return the items of the list in a text, without the names they may begin with."""
    found = re.findall(r"^- (?:\*\*.*?\*\*)?(.*(?:\n .*)*)", text, re.M)
    return [plain(item) for item in found]


def sentences(text: str) -> list[str]:
    """Return the sentences of a plain text."""
    return re.split(r"(?<=\.) ", text)


def first_cells(text: str) -> list[str]:
    """Return the first cell of each row of all tables, without their headings."""
    bodies = re.findall(r"^\| --- .*\n((?:\| .*\n)+)", text, re.M)
    rows = [row for body in bodies for row in body.splitlines()]
    return [plain(row.split(" | ")[0].removeprefix("| ")) for row in rows]


def all_claims(root: pathlib.Path) -> list[str]:
    """Return the claims of the documents below root."""
    readme = (root / "README.md").read_text()
    promised = items(section(readme, "Guarantees"))
    limits = items(section(readme, "Limits"))
    torch = items(section((root / "docs/torch.md").read_text(), "What differs"))
    return [
        *(sentence for item in promised for sentence in sentences(item)),
        *(sentences(item)[0] for item in limits + torch),
        *first_cells((root / "docs/differences-from-grain.md").read_text()),
        *first_cells(section((root / "docs/scale.md").read_text(), "What is exact")),
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


README = """
## Guarantees

- **Order.** It is `kept`. Nothing
  is [lost](docs/x.md); ever.

These are not claims.

## Limits

- One at a time. Always.
"""
DIFFERENCES = """
| Grain | Gristmill |
| --- | --- |
| a `None` fails | it passes |
| two notes | one |

| addition | what it does |
| --- | --- |
| `streams=` | an order |
"""
TESTS = """
import pytest

pytestmark = pytest.mark.claim("Nothing is lost; ever.")


@pytest.mark.claim("two notes")
@pytest.mark.claim("what nobody " "says")
class TestNotes:
    @pytest.mark.parametrize(
        "x", [pytest.param(1, marks=pytest.mark.claim("streams="))]
    )
    def test_one(self, x):
        pass

    @pytest.mark.claim("One at a time.")
    @pytest.mark.claim("Batches view it.")
    def test_two(self):
        pass
"""


def test_untested_claims_and_unknown_texts_are_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests" / "below").mkdir(parents=True)
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "docs/differences-from-grain.md").write_text(DIFFERENCES)
    (tmp_path / "docs/torch.md").write_text(
        "## What differs\n\n- Batches view it. Keep\n  them.\n- `fork` works.\n"
    )
    (tmp_path / "docs/scale.md").write_text(
        "## What is exact\n\n| at 9 | how |\n| --- | --- |\n| an order | as it is |\n"
    )
    (tmp_path / "tests/below/test_x.py").write_text(TESTS)
    assert faults(tmp_path) == (
        ["It is kept.", "fork works.", "a None fails", "an order"],
        ["what nobody says"],
    )
