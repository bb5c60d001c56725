"""Comments, docstrings and pages avoid habits that make English hard to read.

A hit is a place to look at, not an error: good English uses "where" and "of which" now
and then.  So the number of hits per 1,000 words is limited: of the product with its
pages, and of each folder.
"""

import re
from collections import Counter

import pytest

from support import prose
from support.places import ROOT

HABITS = {
    "a clause as a noun": r"^(?:What|Whether|How|Who(?:ever)?|Whatever|Those that)\b",
    "a fronted genitive": r"(?:^|(?<=[.;:] ))(?i:Of (?!course)[a-z`])",
    "of which": r"(?i)\bof (?:which|whom)\b",
    "where for if or when": r"(?i)\bwhere\b",
    "code that speaks": r"(?i)\b(?:tells?|told|says?|said|hears?|heard|knows?)\b"
    r"|\bknown to\b",
    "is no": r"(?i)\b(?:is|are|was|were|be) "
    r"(?:no (?!longer|one|more\b)\w+|none\b|nothing\b)",
    "nobody": r"(?i)\b(?:nobody|somebody|whoever|whatever)\b",
    "a place for an order": r"(?i)\b(?:behind|beside)\b",
    "archaic words": r"(?i)\b(?:in vain|for ever|but for|anew|alike|all the same|lest"
    r"|of its own accord|thereby|so many|in hand|in work|(?:is|are|be) had"
    r"|becomes? of|comes? of)\b",
}
WHOLE = {"pkg", "csrc", "docs", "README.md"}
LIMIT, FOLDER_LIMIT, TESTS_LIMIT = 3.0, 4.0, 5.0
# A folder with fewer words has no meaningful rate.
LEAST_WORDS = 300


def hits_in(piece: str) -> int:
    return sum(len(re.findall(pattern, piece)) for pattern in HABITS.values())


def folder_of(path) -> str:
    """Return the folder that a file counts for, such as pkg/gristmill/_engine."""
    parts = path.relative_to(ROOT).parts
    depth = {"pkg": 3, "csrc": 3}.get(parts[0], 1)
    return "/".join(parts[:depth] if len(parts) > depth else parts[:-1]) or parts[0]


@pytest.fixture(scope="module")
def counted():
    """Return the hits and the words of each folder."""
    hits, words = Counter(), Counter()
    for path in prose.files():
        for piece in prose.prose_of(path):
            hits[folder_of(path)] += hits_in(piece)
            words[folder_of(path)] += len(piece.split())
    return hits, words


def rate(hits, words):
    return 1000 * hits / words


def test_product_and_pages_have_few_bad_habits(counted):
    _, words = counted
    whole = [folder for folder in words if folder.split("/")[0] in WHOLE]
    assert sum(words[folder] for folder in whole) > 100_000
    total = rate(*(sum(each[folder] for folder in whole) for each in counted))
    assert total <= LIMIT


def test_each_folder_has_few_bad_habits(counted):
    hits, words = counted
    bad = {
        folder: round(rate(hits[folder], count), 1)
        for folder, count in words.items()
        if count > LEAST_WORDS
        and rate(hits[folder], count)
        > (TESTS_LIMIT if folder == "tests" else FOLDER_LIMIT)
    }
    assert bad == {}


@pytest.mark.parametrize(
    ("piece", "hits"),
    [
        ("Returns the place of the record.", 0),
        ("What the record holds.", 1),
        ("Read first. Of a batch all rows are copied.", 1),
        ("Raises an error where the file is none, whatever it holds.", 3),
        ("There is no longer a file.", 0),
        ("The function tells which steps come behind the batch.", 2),
    ],
)
def test_hits_of_a_sentence_are_counted(piece, hits):
    assert hits_in(piece) == hits


def test_prose_of_each_kind_of_file_is_found(tmp_path):
    texts = {
        "a.py": '"""One.\n\n>>> code\n"""\nx = 1  # Two.\n',
        "a.pyx": 'x = 1  # One.\n"""Two."""\n',
        "a.cpp": "int x;  // One\n// two.\nint y;\n// Three.\n",
        "a.md": "One.\n```sh\ncode\n```\nTwo.\n",
    }
    found = {}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found[name] = [piece.strip() for piece in prose.prose_of(tmp_path / name)]
    assert found == {
        "a.py": ["One.", "Two."],
        "a.pyx": ["One.", 'Two."""'],
        "a.cpp": ["One two.", "Three."],
        "a.md": ["One.", "", "Two."],
    }
