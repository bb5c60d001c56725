"""Makes an environment for each client, with its locked packages and our wheel.

Environments are kept in the build folder. An environment is made again if its lock
changes, and the wheel is installed again if the sources change.
"""

import ast
import contextlib
import functools
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tomllib

from clients.client import ROOT

UV = pathlib.Path(sys.executable).parent / "uv"
# The files that the wheel is built from.
SOURCES = ("CMakeLists.txt", "pyproject.toml", "csrc/**/*")
SOURCES += ("pkg/**/*.py", "pkg/**/*.py[xi]", "pkg/**/*.pxd", "pkg/**/py.typed")
# Maps options of pip to variables of uv and to the separators of their values.
UV_VARIABLES = {
    "cert": ("SSL_CERT_FILE", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "index-url": ("UV_DEFAULT_INDEX", " "),
}


class NotInstalled(Exception):
    """Packages of a client were not installed, or our wheel was not built."""


def lock(client, folder):
    """Write the versions of all packages that a client and Gristmill need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = folder / f"{client.name}.in"
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.write_text("\n".join([*client.requirements, *project["dependencies"]]))
    options = ["--quiet", "--no-header", "--no-annotate", "--python-version", "3.11"]
    _uv("pip", "compile", *options, "--upgrade", "-o", client.lock, wanted)
    # A local version, such as that of torch's CPU build, is not on PyPI.
    text = re.sub(r"\+\w+$", "", client.lock.read_text(), flags=re.M)
    client.lock.write_text("".join([text, *(f"{line}\n" for line in client.alone)]))


def prepare(client, wheel, folder):
    """Return the Python of a client's environment.

    Raises:
        NotInstalled: The next call repeats the step that failed.
    """
    place = folder / client.name / "venv"
    python = place / "bin" / "python"
    with done_once(place / "lock", client.lock.read_bytes()) as pending:
        if pending:
            _uv("venv", "--quiet", "--clear", "--python", sys.executable, place)
            _install(client, python, place)
    with done_once(place / "wheel", wheel.read_bytes()) as pending:
        if pending:
            options = ["--quiet", "--no-deps", "--reinstall", "--python", python]
            _uv("pip", "install", *options, wheel)
    return python


def _install(client, python, place):
    lines = client.lock.read_text().splitlines()
    resolved = [line for line in lines if line not in client.alone]
    # Other builds of torch than that of the lock require more packages.
    _uv("pip", "install", "--quiet", "--python", python, *resolved)
    if client.alone:
        options = ["--quiet", "--no-deps", "--python-version", "3.14"]
        (packages,) = place.glob("lib/*/site-packages")
        _uv("pip", "install", *options, "--target", packages, *client.alone)


def build_wheel(folder):
    """Return a wheel of the sources, which is built only if they changed.

    Raises:
        NotInstalled: The build printed why.
    """
    place = folder / "wheel"
    with done_once(place / "sources", _sources()) as pending:
        if pending:
            for old in place.glob("*.whl"):
                old.unlink()
            command = [sys.executable, ".ci/make_wheel.py", "build", place]
            if subprocess.run(command, cwd=ROOT).returncode:
                raise NotInstalled("Gristmill's wheel was not built.")
    (wheel,) = place.glob("*.whl")
    return wheel


def _sources():
    """Return the names and the content of the files that the wheel is built from."""
    paths = {path for pattern in SOURCES for path in ROOT.glob(pattern)}
    parts = []
    for path in sorted(path for path in paths if path.is_file()):
        parts += [str(path.relative_to(ROOT)).encode(), path.read_bytes()]
    return b"\0".join(parts)


@contextlib.contextmanager
def done_once(path, content):
    """Yield True if the file does not have the hash of `content`, then write the hash.

    The file does not exist in between, or after an error.
    """
    digest = hashlib.sha256(content).hexdigest()
    pending = not path.is_file() or path.read_text() != digest
    if pending:
        path.unlink(missing_ok=True)
    yield pending
    if pending:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(digest)


def _uv(*arguments):
    command = [UV, "--no-progress", *map(str, arguments)]
    settings = uv_settings(_configuration_of_pip())
    done = subprocess.run(
        command, env={**settings, **os.environ}, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise NotInstalled(" ".join(done.stderr.split()))


@functools.cache
def _configuration_of_pip():
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def uv_settings(configuration):
    """Return variables of uv that match settings of pip, which uv does not read.

    Args:
        configuration: Lines of ``pip config list``. Earlier lines override later ones.
    """
    settings = {}
    for line in reversed(configuration.splitlines()):
        option, _, value = line.partition("=")
        option = option.rpartition(".")[2]
        if option in UV_VARIABLES:
            variable, separator = UV_VARIABLES[option]
            settings[variable] = separator.join(ast.literal_eval(value).split())
    if "UV_INDEX" in settings:
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return settings
