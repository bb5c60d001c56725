"""A test whose package is missing is skipped, but fails in CI."""

import os
import re
import subprocess
import sys

import pytest

from support.places import TESTS

CONFTEST = TESTS / "conftest.py"
NEEDS = {
    "at the top": "import not_installed\n\ndef test_it(): pass\n",
    "in a test": "def test_it():\n    import not_installed.part\n",
    "in a fixture": (
        "import pytest\n\n@pytest.fixture\ndef it():\n    import not_installed\n\n"
        "def test_it(it): pass\n"
    ),
    "importorskip": (
        "import pytest\n\npytest.importorskip('not_installed')\n\ndef test_it(): pass\n"
    ),
    "told": (
        "def test_it():\n    raise ImportError('x needs the y package. Install it')\n"
    ),
}
ERRORS = {
    "gristmill's": "import gristmill.not_there\n\ndef test_it(): pass\n",
    "python's": "def test_it():\n    import os.not_there\n",
    "a helper's": "def test_it():\n    import helper.not_there\n",
    "of helpers in a folder": "def test_it():\n    import helpers.not_there\n",
    "a name": "def test_it():\n    from os import not_there\n",
}


def counts(folder, environ):
    """Return how many of the tests are skipped and how many fail, with our conftest."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "helper.py").touch()
    (folder / "helpers").mkdir(exist_ok=True)
    for number, text in enumerate([*NEEDS.values(), *ERRORS.values()]):
        (folder / f"test_{number}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", "--rootdir", folder, folder]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "CI": "", **environ},
        check=False,
    )
    summary = done.stdout.splitlines()[-1]
    found = {kind: int(n) for n, kind in re.findall(r"(\d+) (\w+?)s?\b", summary)}
    return found.get("skipped", 0), found.get("failed", 0) + found.get("error", 0)


@pytest.mark.multiprocess
def test_missing_package_skips_and_missing_own_module_fails(tmp_path):
    assert counts(tmp_path, {}) == (len(NEEDS), len(ERRORS))


@pytest.mark.multiprocess
def test_missing_package_fails_in_ci(tmp_path):
    assert counts(tmp_path, {"CI": "true"}) == (0, len(NEEDS) + len(ERRORS))
