"""The test extra is installable on each platform that the README names."""

import re

import pytest

from support import extras

OF_TENSORFLOW = {"tensorflow", "tensorflow-cpu"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
# Where .ci/run runs.
COMMIT = {"python_version": "3.11", "platform_machine": "x86_64"}


def test_readme_names_these_platforms():
    text = (extras.ROOT / "README.md").read_text()
    assert "CPython 3.11 to 3.14, Linux 5.4 or newer, x86-64 and aarch64." in text
    prefix = "Programming Language :: Python :: "
    classifiers = extras.PROJECT["classifiers"]
    named = [c.removeprefix(prefix) for c in classifiers if c.startswith(prefix)]
    assert tuple(named) == PYTHONS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_tensorflow_and_bagz_depend_on_the_platform(python, machine):
    here = extras.packages("test", python_version=python, platform_machine=machine)
    least = extras.packages("test", python_version="3.14", platform_machine="aarch64")
    found = {"bagz"} if machine == "x86_64" else set()
    if python != "3.14":
        found.add("tensorflow-cpu" if machine == "x86_64" else "tensorflow")
    assert here - least == found
    assert least <= here


def test_tensorflow_is_skipped_only_if_the_extra_lacks_it(monkeypatch):
    monkeypatch.setattr(extras, "packages", lambda extra: {"numpy"})
    with pytest.raises(pytest.skip.Exception, match="no wheel for this Python"):
        extras.tensorflow()
    monkeypatch.setattr(extras, "packages", lambda extra: {"tensorflow"})
    with pytest.raises(ModuleNotFoundError):
        extras.tensorflow("tensorflow.no_such_module")


def test_no_test_imports_tensorflow_directly():
    imports = re.compile(
        r"^\s*(?:from|import) tensorflow|importorskip\(.tensorflow", re.MULTILINE
    )
    # Programs that tests start after checking for TensorFlow.
    programs = {"as_it_is.py", "tf_record_oracle.py", "tfds_builder.py"}
    found = {
        path.name
        for path in (extras.ROOT / "tests").rglob("*.py")
        if imports.search(path.read_text())
    }
    assert found == programs


# Patterns of code that needs an extra.
USES = {
    "convert": r"\barray_record\.python\b|\bgristmill convert\b",
    "parquet": r"\bimport pyarrow\b|\bParquetDataSource\(|\bParquetIterDataset\(",
    "image": r"\bPIL\b|\bDecodeImage\(",
    "remote": r"\bimport fsspec\b",
    "torch": r"\bimport torch\b|\bgristmill\.torch\b|\bfrom torch\b",
    "jax": r"\bimport jax\b|\bgristmill\.jax\b|\bfrom jax\b",
    "orbax": r"\borbax\b|\bCheckpointSave\(|\bCheckpointRestore\(",
    "opentelemetry": r"\bfrom opentelemetry\b",
    "prometheus": r"\bprometheus_client\b",
    "ray": r"\bimport ray\b|\bgristmill\.ray\b",
    "beam": r"\bgristmill\.beam\b|\bapache_beam\b",
}
BLOCK = re.compile(r"^```(?:python|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = ["README.md", "docs/images.md", "docs/record-files.md", "docs/torch.md"]
PAGES += [
    "docs/recipes.md",
    "docs/convert.md",
    "docs/checkpointing.md",
    "docs/quickstart.md",
]
EXAMPLES = sorted(path.name for path in (extras.ROOT / "examples").glob("*.py"))


def used(code):
    return {extra for extra, pattern in USES.items() if re.search(pattern, code)}


def named(text):
    """Return the extras in each ``pip install`` of Gristmill in a text."""
    found = re.findall(r"pip install '(?:gristmill|\.)\[([a-z,]+)\]'", text)
    return [{*extras.split(",")} for extras in found]


def test_every_extra_of_users_has_a_pattern():
    of_developers = {"bench", "clients", "demo", "dev", "docs", "lint", "test", "wheel"}
    assert {*USES} == {*extras.PROJECT["optional-dependencies"]} - of_developers


def test_install_lines_cover_code_of_readme_and_recipes():
    pages = [extras.ROOT / page for page in ("README.md", "docs/recipes.md")]
    code = "\n".join(
        block for page in pages for block in BLOCK.findall(page.read_text())
    )
    text = (extras.ROOT / "docs/install.md").read_text()
    lines = [names for names in named(text) if len(names) > 1]
    assert len(lines) == 2
    # A record in an example may be a picture or a row.
    needed = used(code) | {"image", "parquet"}
    assert all(names == needed for names in lines)


@pytest.mark.parametrize("page", PAGES[1:])
def test_page_names_the_extras_of_its_code(page):
    text = (extras.ROOT / page).read_text()
    names = set(",".join(re.findall(r"(?:gristmill|`)\[([a-z,]+)\]", text)).split(","))
    assert used("\n".join(BLOCK.findall(text))) - names == set()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_names_the_extras_of_its_code(name):
    text = (extras.ROOT / "examples" / name).read_text()
    needed = used(text.partition('"""\n\n')[2])
    (line, *_) = named(text) or [set()]
    # The extra `demo` has packages that depend on the others.
    assert needed - line == set() or line == {"demo"}


def test_versions_page_lists_the_pinned_packages():
    pinned = {
        (requirement.name, extra): str(requirement.specifier).removeprefix("==")
        for extra in ("test", "bench")
        for requirement in extras.requirements(extra, **COMMIT)
        if str(requirement.specifier).startswith("==")
    }
    for alone in extras.SETTINGS["dependency-groups"]["test-no-deps"]:
        name, _, version = alone.partition("==")
        pinned[name, "test"] = version
    rows = [
        (name, pinned.get((name, "test"), ""), pinned.get((name, "bench"), ""))
        for name in sorted({name for name, _ in pinned})
    ]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("|  |", "| |")
    assert table in (extras.ROOT / "docs/versions.md").read_text(), table
