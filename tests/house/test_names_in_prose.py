"""Each file and each name in a comment or on a page exists.

A name is a word in backticks that could be an identifier.  It exists if some code, a
Makefile or a configuration file contains that word outside of comments.
"""

import io
import re
import tokenize

import pytest

from support import prose
from support.places import ROOT

NAME = re.compile(r"`+([A-Za-z_][\w.]*)(?:\(\))?`+")
FILE = re.compile(r"(?<![\w/])[\w./-]+\.(?:py|pyx|pxd|cpp|hpp|md|svg)\b")
SETTINGS = ["Makefile", "CMakeLists.txt", "pyproject.toml", ".ci/run"]
# Names of other packages and tools, which no code here uses.
FOREIGN = """
AUTOTUNE FileMetaData PIP_FIND_LINKS PackedSequence cache_limit
SaveableDataLoader Statistics RAY_ADDRESS breakpoint
cudaMemcpyAsync dmesg get_default_device job_name label_selector
max_target_sequence_length mid_level_dataset_surplus num_gpus oom py_function
python_function smem streaming_split
""".split()
# Names with a part that code adds, commits, and names in other packages.
MADE = re.compile(
    r"(ray_)?gristmill_\w+|ray_|GRISTMTF|tar1|[0-9a-f]{7}"
    r"|k_(positions|segment_ids|loss_mask|cu_seqlens|max_seqlen)"
    r"|(daemon|kernel|pyarrow|tf)\.[\w.]+|torch\."
)
# Examples, files of users and files that are written, and files of other packages.
OTHER_FILES = """
.../a/b/file.py script.py train.py tests/programs/x/y/z.py tests/unit/test_y.py
tests/x/test_y.py torch/utils/data/_utils/worker.py
""".split()


def code_words(path) -> set[str]:
    """Return the words of a file outside of comments and docstrings."""
    text = path.read_text()
    if path.suffix in prose.PYTHON:
        words = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                words.add(token.string)
            elif token.type == tokenize.STRING and '"""' not in token.string[:4]:
                words.update(re.findall(r"\w+", token.string))
        return words
    if path.suffix in prose.CYTHON:
        text = re.sub(r'"""(?:.|\n)*?"""|#.*', "", text)
    elif path.suffix in prose.CPP:
        text = re.sub(r"//.*", "", text)
    elif path.suffix == ".md":
        text = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
    return {*re.findall(r"\w+", text)}


@pytest.fixture(scope="module")
def words():
    files = [*prose.files(), *(ROOT / name for name in SETTINGS)]
    files += (ROOT / ".github").rglob("*.yml")
    folders = {part for path in files for part in path.relative_to(ROOT).parts}
    return folders.union(*map(code_words, files))


@pytest.fixture(scope="module")
def pieces():
    """Return each file's pieces of prose."""
    return {
        path.relative_to(ROOT).as_posix(): list(prose.prose_of(path))
        for path in prose.files()
    }


def test_each_name_in_prose_exists(words, pieces):
    known = words.union(FOREIGN)
    missing = {
        (file, name)
        for file, found in pieces.items()
        for piece in found
        for name in NAME.findall(piece)
        if name.rsplit(".", 1)[-1] not in known and not MADE.fullmatch(name)
    }
    assert missing == set()


def test_each_file_in_prose_exists(pieces):
    found = [path for folder in prose.FOLDERS for path in (ROOT / folder).rglob("*.*")]
    found += ROOT.glob("*.md")
    ends = [f"/{path.relative_to(ROOT)}\n" for path in found]
    every = "".join([*ends, *(f"/{name}\n" for name in OTHER_FILES)])
    missing = {
        (file, name)
        for file, found in pieces.items()
        for piece in found
        for name in FILE.findall(piece)
        if f"/{re.sub(r'^([.][.]?/)+', '', name)}\n" not in every
    }
    assert missing == set()


def test_each_foreign_name_is_used(words, pieces):
    used = {n for found in pieces.values() for p in found for n in NAME.findall(p)}
    last = {name.rsplit(".", 1)[-1] for name in used}
    assert [name for name in FOREIGN if name in words or name not in last] == []
