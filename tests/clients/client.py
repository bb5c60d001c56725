"""Reads the descriptions of clients: a folder with client.toml for each."""

import ast
import dataclasses
import hashlib
import pathlib
import re
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEERS = ("grain", "torch")


@dataclasses.dataclass(frozen=True)
class Client:
    """A package from PyPI, and a program that uses it with a peer's loader.

    Attributes:
        name: Name of the folder.
        title: Name of the package for readers.
        package: Name of the package on PyPI.
        peer: The library whose loader the program uses: one of `PEERS`.
        requirements: Pinned packages that the program imports.
        alone: More pinned packages. They are installed without their dependencies, and
            may require a newer Python.
        changes: Lines of the program, and the lines that replace them for Gristmill.
        drop_in: Run the program by ``python -m gristmill.drop_in`` for Gristmill.
        environment: Environment variables of the program.
    """

    name: str
    title: str
    package: str
    peer: str
    requirements: list[str]
    alone: list[str] = dataclasses.field(default_factory=list)
    changes: dict[str, str] = dataclasses.field(default_factory=dict)
    drop_in: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.peer not in PEERS:
            raise ValueError(
                f"{self.name}: peer must be one of {PEERS}, {self.peer!r}."
            )
        if bool(self.changes) == self.drop_in:
            raise ValueError(
                f"{self.name}: needs either changes of lines or drop_in = true."
            )

    @property
    def folder(self):
        return HERE / self.name

    @property
    def lock(self):
        """Return the path of the list of all packages with their versions."""
        return self.folder / "requirements.txt"

    @property
    def result(self):
        """Return the path of the result of the last run."""
        return self.folder / "result.json"

    def version(self):
        """Return the version of the package in the lock."""
        name = re.escape(self.package)
        found = re.search(rf"^{name}==(\S+)$", self.lock.read_text(), re.M)
        if not found:
            raise ValueError(f"{self.lock} has no line {self.package}==VERSION.")
        return found[1]

    def program(self, loader):
        """Return the text of the program for "peer" or "gristmill"."""
        lines = (self.folder / "program.py").read_text().splitlines()
        for old, new in self.changes.items() if loader == "gristmill" else ():
            count = lines.count(old)
            if count != 1:
                raise ValueError(
                    f"{self.name}: the program must have the line {old!r} once, found"
                    f" {count} of them."
                )
            lines[lines.index(old)] = new
        return "\n".join([*lines, ""])

    def inputs(self):
        """Return a hash of the programs, their settings and the packages."""
        parts = [self.program("peer"), self.program("gristmill"), self.lock.read_text()]
        parts += [str(self.drop_in), str(sorted(self.environment.items()))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def subject(self):
        """Return the first sentence of the program's docstring."""
        text = ast.get_docstring(ast.parse(self.program("peer")))
        return " ".join(text.partition("\n\n")[0].split())


def read(name):
    """Return the client of one folder."""
    path = HERE / name / "client.toml"
    if not path.is_file():
        known = ", ".join(client_names())
        raise ValueError(f"There is no client {name!r}. Clients are {known}.")
    return Client(name=name, **tomllib.loads(path.read_text()))


def client_names():
    return sorted(path.parent.name for path in HERE.glob("*/client.toml"))
