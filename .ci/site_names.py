"""The public names of the modules, read from their sources without building them."""

import ast
import functools
import pathlib

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "pkg" / "gristmill"


def public_modules():
    """Return the names of the modules that users import."""
    names = ["gristmill"]
    for path in sorted(PACKAGE.iterdir()):
        package = path.is_dir() and (path / "__init__.py").exists()
        if not path.name.startswith("_") and (package or path.suffix == ".py"):
            names.append(f"gristmill.{path.stem}")
    return names


def names_of(module):
    """Return a module's public names, sorted, including those of optional packages."""
    given = _literals(module)
    names = given.get("__all__")
    if names is None:
        modules = given.get("_MODULES", "").split()
        names = [*given["_EAGER_NAMES"].split(), *homes_of(module), *modules]
    return sorted({*names, *given.get("_OPTIONAL", ())})


def homes_of(module):
    """Return the path of each name that a module imports on first use."""
    return {
        name: f"gristmill.{home}.{theirs or name}"
        for home, names in _literals(module).get("_HOMES", {}).items()
        for name, _, theirs in (pair.partition("=") for pair in names.split())
    }


@functools.cache
def _literals(module):
    """Return the literals that a module assigns to names; None for other values."""
    path = PACKAGE.parent / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return {
        node.targets[0].id: _value(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _value(node):
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = map(_value, node.keys)
        return dict(zip(keys, map(_value, node.values), strict=True))
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
