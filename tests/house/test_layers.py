"""Rooms import only from rooms below, and no files import each other in a circle."""

import ast
import graphlib
import itertools
import pathlib
import re
from collections.abc import Iterator

import pytest

from support.places import ROOT

PACKAGE = ROOT / "pkg" / "gristmill"
CSRC = ROOT / "csrc"

# Folders of pkg/gristmill and public modules. Each imports only from those before it.
ROOMS = """
    _base _core constants config errors options mixing sharding transforms images
    sources records _hot batching bad_records checkpoint monitoring multiprocessing
    operations samplers drop_in _workers _engine
    _dataset/model _dataset/nodes _dataset/parallel _dataset experimental
    _pool _ray _observe loader _convert _peers
    _torch/bases
    _torch/private _torch/epochs _torch/indices _torch/layout _torch/batches
    _torch/device _torch/workers _torch/resume _torch/iterators _torch/loader
    _torch/stateful _torch/trainers _torch torch
    jax python beam _cli _host host ray __main__
""".split()
CPP_ROOMS = """
    core/base core/indices core/batches core/files core/array_record core/tf_record
    core/tar core/bag core/lines core/mds core/tokens core/packing core/example
    core/images core/memory core/schedule core/processes
    bindings bindings/base bindings/indices bindings/batches bindings/files
    bindings/array_record bindings/tf_record bindings/tar bindings/bag bindings/lines
    bindings/mds bindings/tokens bindings/packing bindings/example bindings/images
    bindings/memory bindings/schedule bindings/processes module
""".split()
# Files that import modules by computed names, and why.
COMPUTED_NAMES = {
    "gristmill._base.grain_names": "Grain's names of our modules",
    "gristmill._base.imports": "functions to call when a module is imported",
    "gristmill._base.lazy_names": "the public names of a package",
    "gristmill._cli.program": "the program of a user",
    "gristmill._convert.errors": "packages that a format needs",
    "gristmill._host.server_process": "modules that programs need",
    "gristmill._workers.launcher": "modules that the program has imported",
    "gristmill._workers.zygote": "the entry point of the program",
    "gristmill.drop_in": "modules that stand for Grain's",
}
CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+(?P<module>gristmill[\w.]*)\s+c?import\s+(?P<names>.+)"
    r"|c?import\s+(?P<whole>gristmill[\w.]*))"
)


def name_of(path: pathlib.Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


FILES = {
    name_of(path): path
    for path in sorted(PACKAGE.rglob("*"))
    if path.suffix in (".py", ".pyx", ".pxd")
}
COMPILED = {"gristmill._core"}


def room_of(module: str) -> str:
    """Return the first two parts if the first folder has rooms, else the first."""
    parts = module.split(".")[1:]
    if parts[0] in ("_dataset", "_torch"):
        return "/".join(parts[:2])
    return parts[0]


def imported_modules(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module of gristmill) for every import anywhere in a file.

    Imports for type checkers count. So do strings that name a module, including those
    made from the file's own name.
    """
    if path.suffix != ".py":
        yield from _cython_imports(path)
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: import absolutely"
            for alias in node.names:
                yield from _target(node.lineno, node.module or "", alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _target(node.lineno, alias.name)
        elif isinstance(node, ast.Constant) and node.value in {*FILES} - {"gristmill"}:
            yield node.lineno, str(node.value)
        elif isinstance(node, ast.JoinedStr) and "{__name__}" in ast.unparse(node):
            rest = ast.unparse(node).partition("{__name__}")[2].strip("'\"")
            if (target := name_of(path) + rest) in FILES:
                yield node.lineno, target


def _cython_imports(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if found := CYTHON_IMPORT.match(line):
            for name in re.findall(r"\w+", found["names"] or "") or [""]:
                yield from _target(number, found["module"] or found["whole"], name)


def _target(line: int, module: str, name: str = "") -> Iterator[tuple[int, str]]:
    if module.split(".")[0] != "gristmill":
        return
    inner = f"{module}.{name}"
    known = inner in FILES or inner in COMPILED
    yield line, inner if known else module


IMPORTS = {
    module: list(imported_modules(path))
    for module, path in FILES.items()
    if module != "gristmill"  # The public module imports everything.
}


def test_rooms_import_only_from_lower_rooms():
    rank = {room: number for number, room in enumerate(ROOMS)}
    wrong = []
    for module, imports in IMPORTS.items():
        here = room_of(module)
        assert here in rank, f"{module}: give {here} a place in {__file__}"
        for line, target in imports:
            where = f"{module}:{line} imports {target}"
            there = "_cli" if target == "gristmill" else room_of(target)
            if here == there:
                continue
            if rank[there] > rank[here]:
                wrong.append(where)
    assert not wrong, "\n".join(wrong)


def test_few_files_import_by_computed_names():
    found = {
        module
        for module, path in FILES.items()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and re.search(r"\b(import_module|__import__)$", ast.unparse(node.func))
        and not isinstance(node.args[0], ast.Constant)
    }
    assert found == {*COMPUTED_NAMES}


def test_files_do_not_import_in_circles():
    graph = {
        module: {target for _, target in imports} - {module}
        for module, imports in IMPORTS.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_package_root_has_only_public_modules():
    private = [path.name for path in PACKAGE.glob("_*.py")]
    assert sorted(private) == ["__init__.py", "__main__.py"]


def test_every_folder_describes_its_content():
    for folder in {path.parent for path in FILES.values()} - {PACKAGE}:
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
        assert text is not None and len(text) > 60, folder


def private_names_of_torch(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) for each name of torch that a file imports or reads."""
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


def test_only_one_file_uses_private_names_of_torch():
    private = re.compile(r"torch\..*\b_[a-z]|torch\.utils\.data\.dataloader")
    found = {
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "_torch" / "private.py"
        for line, name in private_names_of_torch(ast.parse(path.read_text()))
        if private.match(name) and "__" not in name
    }
    assert not found, "\n".join(sorted(found))


def cpp_room_of(path: str) -> str:
    folder = path.rpartition("/")[0]
    return "module" if path == "bindings/module.cpp" else folder


def test_cpp_rooms_include_only_from_lower_rooms():
    rank = {room: number for number, room in enumerate(CPP_ROOMS)}
    wrong = []
    for path in sorted(itertools.chain(CSRC.rglob("*.hpp"), CSRC.rglob("*.cpp"))):
        name = path.relative_to(CSRC).as_posix()
        for line, text in enumerate(path.read_text().splitlines(), start=1):
            if quoted := re.match(r'#include "(.*)"', text):
                if rank[cpp_room_of(quoted[1])] > rank[cpp_room_of(name)]:
                    wrong.append(f"{name}:{line}: includes {quoted[1]}")
            elif name.startswith("core") and re.match(
                r"#include <(Python|pybind11|numpy)", text
            ):
                wrong.append(f"{name}:{line}: the core knows no Python")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("root", "pattern", "limit"),
    [(CSRC, "*.hpp", 200), (PACKAGE, "*.py", 500), (PACKAGE, "*.pyx", 500)],
)
def test_files_stay_readable(root, pattern, limit):
    lengths = {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in root.rglob(pattern)
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > limit} == {}
