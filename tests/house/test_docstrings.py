"""Docstrings of public callables describe the parameters and the result."""

import ast
import enum
import importlib
import inspect
import pkgutil
import re
import textwrap

import pytest

import gristmill
from support import extras

MODULES = [
    "gristmill",
    *(
        f"gristmill.{found.name}"
        for found in pkgutil.iter_modules(gristmill.__path__)
        if not found.name.startswith("_")
    ),
]
HEADER = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Examples?):")
NOT_VERBS = re.compile(
    r"(A|An|As|All|Any|Each|How|If|In|It|Like|No|None|Of|On|See|The|This|True|What"
    r"|When|Where|Whether|Which|Who|[A-Z][a-z]+ing)\b"
)
# Chains: each method returns a new dataset, as the docstrings of the classes say.
CHAINS = ("IterDataset", "MapDataset")
# Methods that refer to another callable for their arguments, by its name.
REFERENCES = {
    "MapDataset.at_epoch": "IterDataset.at_epoch",
    "MapDataset.bucket_by_sequence_length": "IterDataset.bucket_by_sequence_length",
    "MapDatasetMeta.range": "range",
}


def sections_of(doc):
    """Return the text of each Google section of a docstring, by name."""
    found, name = {}, None
    for line in doc.splitlines():
        header = HEADER.fullmatch(line)
        if header:
            name = header[1]
            found[name] = ""
        elif line and not line.startswith(" "):
            name = None
        elif name is not None:
            found[name] += line + "\n"
    return found


def is_ours(value):
    return (getattr(value, "__module__", None) or "").startswith("gristmill")


def methods_of(cls):
    """Return the public methods of a class and its metaclass, by name."""
    found = {}
    for owner in (*cls.__mro__, *type(cls).__mro__):
        for name, member in vars(owner).items() if is_ours(owner) else ():
            kinds = (classmethod, staticmethod)
            function = member.__func__ if isinstance(member, kinds) else member
            if not name.startswith("_") and inspect.isfunction(function):
                found.setdefault(name, (function, isinstance(member, staticmethod)))
    return found


def parameters_of(function, *, bound):
    """Return the names of the parameters that docstrings describe."""
    given = [*inspect.signature(function).parameters.values()][bound:]
    passed_on = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in given if each.kind not in passed_on]


def inherited_sections(cls, name):
    """Return the sections of a method, which overridden methods may complete."""
    found = {}
    for owner in reversed((*cls.__mro__, *type(cls).__mro__)):
        doc = getattr(vars(owner).get(name), "__doc__", None)
        found |= sections_of(inspect.cleandoc(doc or ""))
    return found


def raises(function):
    """Return whether a function itself raises errors or calls a `check_` function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):
        return False  # Generated, such as the constructor of a dataclass.
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and ast.unparse(node.func)
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if called and called.rpartition(".")[2].startswith("check_"):
            return True
    return False


def problems_of_class(cls):
    doc = inspect.cleandoc(vars(cls).get("__doc__") or "")
    if issubclass(cls, (enum.Enum, BaseException)) or getattr(cls, "_is_protocol", 0):
        return [] if doc else ["no docstring"]
    sections = sections_of(doc)
    described = sections.get("Args", "") + sections.get("Attributes", "")
    names = parameters_of(cls, bound=False)
    missing = [f"parameter {n}" for n in names if f" {n}:" not in described]
    builders = (
        vars(cls).get(name) for name in ("__init__", "__new__", "__post_init__")
    )
    if "Raises" not in sections and any(map(raises, filter(None, builders))):
        missing.append("Raises")
    return missing


def problems_of(function, doc, sections, *, bound, is_chain=False):
    names = parameters_of(function, bound=bound)
    described = sections.get("Args", "")
    missing = [f"parameter {n}" for n in names if f" {n}:" not in described]
    if NOT_VERBS.match(doc) or not doc:
        missing.append("a verb at the start")
    if "See there" in doc:
        missing.append("a text in place of 'See there'")
    result = function.__annotations__.get("return")
    returns = result not in (None, "None") and not (
        is_chain and str(result).startswith(CHAINS)
    )
    # Without parameters, a first line such as "Return the state." says it all.
    described_result = {"Returns", "Yields"} & {*sections} or (
        not names and doc.startswith("Return")
    )
    if returns and not described_result:
        missing.append("Returns")
    if "Raises" not in sections and raises(inspect.unwrap(function)):
        missing.append("Raises")
    return missing


def public_problems(module_name):
    """Yield (name, problems) of the public callables of a module."""
    module = importlib.import_module(module_name)
    for name in dir(module):
        value = getattr(module, name)
        if not is_ours(value):
            continue
        if inspect.isclass(value):
            yield name, problems_of_class(value)
            for method, (function, is_static) in methods_of(value).items():
                doc = inspect.getdoc(getattr(value, method)) or ""
                sections = inherited_sections(value, method)
                owners = {owner.__name__ for owner in value.__mro__}
                flags = {"bound": not is_static, "is_chain": owners & {*CHAINS}}
                found = problems_of(function, doc, sections, **flags)
                yield function.__qualname__, found
        elif inspect.isfunction(value):
            doc = inspect.cleandoc(value.__doc__ or "")
            yield name, problems_of(value, doc, sections_of(doc), bound=False)


@pytest.mark.parametrize("module_name", MODULES)
def test_public_docstrings_have_args_and_returns(module_name):
    extras.need("apache_beam", "jax", "orbax", "torch")
    found = dict(public_problems(module_name))
    missing = {name: problems for name, problems in found.items() if problems}
    assert {name: p for name, p in missing.items() if name not in REFERENCES} == {}


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items())
def test_references_name_a_documented_callable(name, reference):
    owner, _, method = name.partition(".")
    cls = getattr(gristmill, owner.removesuffix("Meta"))
    assert f"`{reference}`" in getattr(cls, method).__doc__


def test_references_are_needed():
    extras.need("apache_beam", "jax", "orbax", "torch")
    missing = {
        name
        for module_name in MODULES
        for name, problems in public_problems(module_name)
        if problems
    }
    assert missing >= {*REFERENCES}
