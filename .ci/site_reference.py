"""The pages of the reference, one for each public module, with all its public names.

Each name is described on one page: that of the public module that defines it, or
`gristmill` if a private module defines it.  Other pages list the name in a table, with
a link to that page.
"""

import functools
import re

import griffe
import site_names
from mkdocs.exceptions import PluginError

# The first names on each page; the others follow in the order of the source.
FIRST = {
    "gristmill": "DataLoader load MapDataset IterDataset DatasetIterator",
    "gristmill.checkpoint": "CheckpointHandler CheckpointSave CheckpointRestore",
    "gristmill.config": "config Config",
    "gristmill.torch": "DataLoader StatefulDataLoader",
    "gristmill.transforms": "Map MapWithIndex RandomMap Filter FlatMap Batch",
}
# The tables list the names of these modules first.
HOMES = """
    loader sources transforms samplers sharding options records checkpoint
    multiprocessing operations config errors constants
""".split()
# The tables list names that other pages describe, names that are different on those
# pages, and modules.
TABLES = ["Names", "Other names of the same", "Modules"]
HEAD = """# {module}

::: {module}
    options:
      members: []
      show_root_heading: false
      show_root_toc_entry: false
"""


def page_of(module):
    """Return the text of a module's page."""
    described, tables = [], {title: [] for title in TABLES}
    names, older, modules = tables.values()
    for name in _in_order(module):
        path = f"{module}.{name}"
        anchor = f'<a id="{path}"></a>'
        place = _target(path)
        home = _home(place)
        said = _first_line(place)
        if place in site_names.public_modules():
            modules.append(f"{anchor}[`{name}`]({place}.md) | {said}")
        elif home == path:
            described.append(f"::: {path}\n")
            if module == "gristmill":
                names.append(f"[`{name}`][{home}] | {said}")
        elif home.endswith(f".{name}"):
            names.append(f"{anchor}[`{name}`][{home}] | {said}")
        else:
            older.append(f"{anchor}`{name}` | [`{home}`][{home}]")
    listed = [_table(title, rows) for title, rows in tables.items() if rows]
    # Most names of the package come from its modules, so its page begins with the list.
    parts = [*listed, *described] if module == "gristmill" else [*described, *listed]
    return "\n".join([HEAD.format(module=module), *parts])


def check(module, html):
    """Raise an error if a page lacks a public name, or has one that is not public."""
    names = {*site_names.names_of(module)}
    shown = {*re.findall(rf'id="{re.escape(module)}\.(\w+)"', html)}
    if names != shown:
        raise PluginError(
            f"reference/{module}.md: public but not shown: {sorted(names - shown)};"
            f" shown but not public: {sorted(shown - names)}"
        )


def _in_order(module):
    first = FIRST.get(module, "").split()
    members = list(_package()[module].members)
    names = site_names.names_of(module)

    def place(name):
        if name in first:
            return 0, first.index(name)
        home = _home(_target(f"{module}.{name}")).split(".")[1]
        theirs = HOMES.index(home) if home in HOMES else len(HOMES)
        source = members.index(name) if name in members else len(members)
        return 1, theirs, source

    return sorted(names, key=place)


def _table(title, rows):
    head = [f"## {title}\n", "| name | what it is |", "| --- | --- |"]
    return "\n".join([*head, *(f"| {row} |" for row in rows), ""])


def _first_line(place):
    docstring = _package()[place].docstring
    if docstring is None:
        raise PluginError(f"{place} is public and has no docstring.")
    return docstring.value.splitlines()[0]


@functools.cache
def _package():
    """Return griffe's model of the package's sources."""
    paths = [site_names.PACKAGE.parent]
    loader = griffe.GriffeLoader(search_paths=paths, allow_inspection=False)
    loader.load("gristmill")
    loader.resolve_aliases(implicit=True, external=False)
    return loader.modules_collection


def _target(path):
    """Return the path at which the object behind a public name is defined."""
    module, _, name = path.rpartition(".")
    homes = site_names.homes_of(module) if module in site_names.public_modules() else {}
    if name in homes:
        return _target(homes[name])
    if path in site_names.public_modules():
        # `gristmill.config` is the object in the module of that name.
        inside = name in site_names.names_of(path)
        return _target(f"{path}.{name}") if inside else path
    found = _package()[path]
    return found.final_target.path if found.is_alias else found.path


@functools.cache
def _home(place):
    """Return the public name under which an object is described."""
    name = place.rpartition(".")[2]
    modules = [
        module
        for module in site_names.public_modules()
        if name in site_names.names_of(module) and _target(f"{module}.{name}") == place
    ]
    around = [module for module in modules if place.startswith(f"{module}.")]
    return f"{max(around or modules[:1], key=len)}.{name}"
