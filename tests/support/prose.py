"""Returns the prose of a file: comments, docstrings, and the text of pages."""

import ast
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator

from support.places import ROOT

PYTHON = {".py", ".pyi"}
CYTHON = {".pyx", ".pxd"}
CPP = {".cpp", ".hpp"}
FOLDERS = ("pkg", "csrc", "docs", "tests", "benchmarks", "examples", ".ci")


def files() -> Iterator[pathlib.Path]:
    """Yield the files of the project that contain prose."""
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {*PYTHON, *CYTHON, *CPP, ".md"}:
                yield path


def prose_of(path: pathlib.Path) -> Iterator[str]:
    """Yield the pieces of prose of a file: a comment, a docstring, or a line."""
    text = path.read_text()
    if path.suffix in PYTHON:
        yield from _python(text)
    elif path.suffix in CYTHON:
        yield from re.findall(r'(?:#|""")\s*(.*)', text)
    elif path.suffix in CPP:
        yield from _cpp(text)
    else:
        fenced = re.compile(r"^\s*```.*?^\s*```[^\n]*$", re.DOTALL | re.MULTILINE)
        yield from fenced.sub("", text).splitlines()


def _python(text: str) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and (doc := ast.get_docstring(node)):
            lines = doc.splitlines()
            examples = (">>>", "...")
            yield "\n".join(x for x in lines if not x.lstrip().startswith(examples))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def _cpp(text: str) -> Iterator[str]:
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if found := re.search(r"//+\s?(.*)", line):
            block.append(found[1])
        elif block:
            yield " ".join(block)
            block = []
