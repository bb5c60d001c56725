"""Imports point down: a module imports only from rows above its own."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pkg" / "gristmill"
CSRC = ROOT / "csrc"

# A module imports from rows above it, never from its own, except that the files of
# one folder may import each other.
ROWS = (
    {"_describing", "_listing"},
    {
        "_checks",
        "_closing",
        "_grain_names",
        "_imports",
        "_log",
        "_object_path",
        "_retries",
        "_torch_names",
        "_types",
        "constants",
        "errors",
    },
    {"_open_files"},
    {"_core", "_hot"},
    {"_processes", "_worker_process"},
    {"_zygotes"},
    {"_zygote"},
    {
        "_columns",
        "_group_cache",
        "_group_order",
        "_record_source",
        "_remote",
        "_rng_pool",
    },
    {"_record_files"},
    {"_file_names"},
    {
        "_array_record",
        "_features",
        "_launcher",
        "_shared_list",
        "_tf_record",
        "_tf_record_stream",
        "bad_records",
        "config",
        "monitoring",
        "options",
        "records",
    },
    {"_arrow", "_convert", "_parquet_files", "sharding", "transforms"},
    {"_decoding", "_example", "_parquet", "_sampler_checks", "_source_checks"},
    {"batching", "checkpoint", "multiprocessing", "samplers", "sources"},
    {"_absl_flags", "_ahead", "_image", "_npy", "_trees", "drop_in", "operations"},
    {"_tfds_features"},
    {"_tfds"},
    {"_engine"},
    {"_arguments", "_dataset"},
    {"experimental", "loader"},
    {"_keras", "_torch"},
    {"_cli", "beam", "jax", "python", "torch"},
    {"__main__"},
)
ROW_OF = {module: row for row, modules in enumerate(ROWS) for module in modules}
CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+gristmill(?P<module>[\w.]*)\s+c?import\s+(?P<names>.+)"
    r"|c?import\s+gristmill(?P<whole>[\w.]*))"
)


def imported_modules(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yield (line, top module under gristmill) for every import in a file."""
    if path.suffix in (".pyx", ".pxd"):
        yield from _cython_imports(path)
        return
    for node in _nodes_that_run(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: import absolutely"
            names = [alias.name for alias in node.names]
            yield from _targets(node.lineno, node.module or "", names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _targets(node.lineno, alias.name, [])


def _nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a module, less what only type checkers read: it imports nothing."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from _nodes_that_run(node)


def _cython_imports(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if found := CYTHON_IMPORT.match(line):
            module = found["module"] or found["whole"] or ""
            names = re.findall(r"\w+", found["names"] or "")
            yield from _targets(number, "gristmill" + module, names)


def _targets(line: int, module: str, names: list[str]) -> Iterator[tuple[int, str]]:
    parts = module.split(".")
    if parts[0] != "gristmill":
        return
    for target in parts[1:2] or names:
        yield line, target


def may_import(importer: str, imported: str) -> bool:
    return importer == imported or ROW_OF[imported] < ROW_OF[importer]


def test_imports_point_down():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py*")):
        importer = path.relative_to(PACKAGE).parts[0].partition(".")[0]
        if path.suffix == ".pyc" or importer in ("__init__", "__pycache__"):
            continue
        assert importer in ROW_OF, f"{path.name}: give {importer} a row in {__file__}"
        for line, imported in imported_modules(path):
            # A bare name from the package itself, such as an exported class, is
            # above everything: nothing inside may import it.
            if imported not in ROW_OF or not may_import(importer, imported):
                where = f"{path.relative_to(PACKAGE)}:{line}"
                wrong.append(f"{where}: {importer} may not import {imported}")
    assert not wrong, "\n".join(wrong)


def private_names_of_torch(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) for what a file imports or reads that is private to torch."""
    known = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                known[alias.asname or alias.name] = name
                yield node.lineno, name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            if root in known:
                yield node.lineno, f"{known[root]}.{rest}"


def test_one_file_names_what_is_private_to_torch():
    private = re.compile(r"torch\..*\b_[a-z]|torch\.utils\.data\.dataloader")
    found = {
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "_torch" / "private.py"
        for line, name in private_names_of_torch(ast.parse(path.read_text()))
        if private.match(name) and "__" not in name
    }
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("core", r"core/\w+\.hpp"), ("bindings", r"(core|bindings)/\w+\.hpp")],
)
def test_cpp_includes_point_down(folder, allowed):
    wrong = []
    for path in sorted((CSRC / folder).glob("*.?pp")):
        for line, text in enumerate(path.read_text().splitlines(), start=1):
            quoted = re.match(r'#include "(.*)"', text)
            if quoted and not re.fullmatch(allowed, quoted[1]):
                wrong.append(f"{folder}/{path.name}:{line}: includes {quoted[1]}")
            if folder == "core" and re.match(
                r"#include <(Python|pybind11|numpy)", text
            ):
                wrong.append(f"{folder}/{path.name}:{line}: the core knows no Python")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("root", "pattern", "limit"),
    [(CSRC, "*.hpp", 200), (PACKAGE, "*.py", 500), (PACKAGE, "*.pyx", 500)],
)
def test_files_stay_readable(root, pattern, limit):
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in root.rglob(pattern)
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > limit} == {}
