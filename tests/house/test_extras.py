"""The test extra has what each platform that the README names can install."""

import re

import pytest

from support import extras

OF_TENSORFLOW = {"tensorflow", "tensorflow-cpu"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")


def test_the_readme_names_these_platforms():
    text = (extras.ROOT / "README.md").read_text()
    assert "CPython 3.11 to 3.14, Linux 5.4 or newer, x86-64 and aarch64." in text
    prefix = "Programming Language :: Python :: "
    classifiers = extras.PROJECT["classifiers"]
    named = [c.removeprefix(prefix) for c in classifiers if c.startswith(prefix)]
    assert tuple(named) == PYTHONS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_tensorflow_and_bagz_are_the_packages_that_differ(python, machine):
    here = extras.packages("test", python_version=python, platform_machine=machine)
    least = extras.packages("test", python_version="3.14", platform_machine="aarch64")
    found = {"bagz"} if machine == "x86_64" else set()
    if python != "3.14":
        found.add("tensorflow-cpu" if machine == "x86_64" else "tensorflow")
    assert here - least == found
    assert least <= here


def test_tensorflow_is_skipped_where_the_extra_has_none_and_nowhere_else(monkeypatch):
    monkeypatch.setattr(extras, "packages", lambda extra: {"numpy"})
    with pytest.raises(pytest.skip.Exception, match="no wheel for this Python"):
        extras.tensorflow()
    monkeypatch.setattr(extras, "packages", lambda extra: {"tensorflow"})
    with pytest.raises(ModuleNotFoundError):
        extras.tensorflow("tensorflow.no_such_module")


def test_no_test_imports_tensorflow_by_another_way():
    imports = re.compile(
        r"^\s*(?:from|import) tensorflow|importorskip\(.tensorflow", re.MULTILINE
    )
    # These are programs that tests start once TensorFlow is known to be there.
    programs = {"as_it_is.py", "tf_record_oracle.py", "tfds_builder.py"}
    found = {
        path.name
        for path in (extras.ROOT / "tests").rglob("*.py")
        if imports.search(path.read_text())
    }
    assert found == programs
