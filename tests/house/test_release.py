"""A release has one version, a section in the changelog, and links that work."""

import importlib
import re
import tomllib

import pytest

import gristmill
from support.places import ROOT

INIT = "pkg/gristmill/__init__.py"
# Files of a release; others name the versions that were measured or archived.
MAKE = ["pyproject.toml", "CMakeLists.txt", "Makefile", "README.md", "CONTRIBUTING.md"]
FOLDERS = ["pkg", "csrc", "docs", ".ci", ".github"]
TEXTS = {".cpp", ".hpp", ".md", ".py", ".pyi", ".pyx", ".pxd", ".txt", ".yml"}
CHANGELOG = """\
# Changelog

Words.

## [Unreleased]

### Added

- One thing.

## [0.9.0] - 2026-01-02

- The first.
"""
HOME = "https://example.org/someone/gristmill"


@pytest.fixture
def release(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    return importlib.import_module("release")


@pytest.fixture
def index_page(monkeypatch, tmp_path):
    """Return the module, in a checkout that is not on GitHub."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    module = importlib.import_module("index_page")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("[there](docs/x.md)")
    return module


@pytest.fixture
def project(tmp_path):
    """Return a folder with a changelog and a version."""
    (tmp_path / INIT).parent.mkdir(parents=True)
    (tmp_path / INIT).write_text('import x\n\n__version__ = "0.9.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_only_one_file_contains_the_version():
    files = [ROOT / name for name in MAKE]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    version = re.compile(rf"(?<![\d.]){re.escape(gristmill.__version__)}(?![\d.])")
    found = [
        path.relative_to(ROOT) for path in files if version.search(path.read_text())
    ]
    assert [path.as_posix() for path in found] == [INIT]


def test_version_is_also_three_numbers():
    numbers = tuple(map(int, gristmill.__version__.split(".")))  # noqa: RUF048
    assert gristmill.__version_info__ == numbers
    assert len(numbers) == 3


def test_changelog_goes_back_from_unreleased(release):
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *released = [name for name, _ in release.SECTION.findall(text)]
    assert first == "Unreleased"
    assert sorted(released, key=release.numbers, reverse=True) == released
    assert release.numbers(released[0]) <= gristmill.__version_info__


def test_cut_sets_the_version_and_dates_the_section(release, project):
    release.cut("0.10.0", project)
    assert (project / INIT).read_text() == 'import x\n\n__version__ = "0.10.0"\n'
    text = (project / "CHANGELOG.md").read_text()
    cut = re.sub(r"\d{4}-\d\d-\d\d", "TODAY", text.partition("## [0.9.0]")[0])
    assert cut == (
        "# Changelog\n\nWords.\n\n## [Unreleased]\n\n## [0.10.0] - TODAY\n\n"
        "### Added\n\n- One thing.\n\n"
    )
    assert release.notes("v0.10.0", project) == "### Added\n\n- One thing."


def test_version_already_in_the_sources_can_be_cut(release, project):
    release.cut("0.9.1", project)
    (project / "CHANGELOG.md").write_text(CHANGELOG)
    release.cut("0.9.1", project)
    assert release.notes("v0.9.1", project).endswith("- One thing.")


@pytest.mark.parametrize(
    ("version", "text", "said"),
    [
        ("0.9.0", CHANGELOG, "0.9.0 does not come after 0.9.0."),
        ("0.8.10", CHANGELOG, "0.8.10 does not come after 0.9.0."),
        ("1.0", CHANGELOG, "1.0 is no version such as 0.3.0."),
        (
            "1.0.0",
            "## [Unreleased]\n\n## [0.9.0]\n\n- The first.\n",
            "CHANGELOG.md begins with no changes that are unreleased.",
        ),
    ],
)
def test_invalid_release_changes_nothing(release, project, version, text, said):
    (project / "CHANGELOG.md").write_text(text)
    with pytest.raises(SystemExit, match=re.escape(said)):
        release.cut(version, project)
    assert (project / "CHANGELOG.md").read_text() == text
    assert '"0.9.0"' in (project / INIT).read_text()


def test_tag_must_equal_the_version_and_have_a_section(release, project):
    assert release.notes("v0.9.0", project) == "- The first."
    with pytest.raises(SystemExit, match=r"The tag v0\.9\.1 is not v0\.9\.0"):
        release.notes("v0.9.1", project)
    (project / INIT).write_text('__version__ = "0.9.1"\n')
    with pytest.raises(SystemExit, match=r"has no section of 0\.9\.1: cut it first"):
        release.notes("v0.9.1", project)


def test_workflow_checks_the_tag_before_publishing():
    text = (ROOT / ".github/workflows/wheels.yml").read_text()
    publish = text.partition("\n  publish:\n")[2]
    steps = re.findall(r"^      - (?:uses|run|name): (.*)$", publish, re.MULTILINE)
    assert steps[1] == "The tag is the version, and the changelog has it"
    assert [step.partition("@")[0] for step in steps[-3:]] == [
        "actions/attest-build-provenance",
        "pypa/gh-action-pypi-publish",
        'gh release create "$GITHUB_REF_NAME" --title "$GITHUB_REF_NAME" '
        "--notes-file notes.md dist/*",
    ]


def test_readme_links_work_on_an_index_page(index_page):
    text = (ROOT / "README.md").read_text()
    shown = index_page.readme_of(text, HOME, "1.2.3")
    targets = re.findall(r"\]\(([^)]+)\)", shown)
    assert all(target.startswith(("https://", "#")) for target in targets)
    prefix = f"{HOME}/blob/v1.2.3/"
    files = [target.removeprefix(prefix) for target in targets if prefix in target]
    assert "docs/quickstart.md" in files
    # An image needs the address of the raw file.
    raw = f"{HOME}/raw/v1.2.3/"
    pictures = [target.removeprefix(raw) for target in targets if raw in target]
    assert pictures == ["docs/plots/peers.svg"]
    assert all((ROOT / file).is_file() for file in files + pictures)
    assert shown.replace(prefix, "").replace(raw, "") == text


def test_readme_is_unchanged_without_a_home(index_page):
    assert index_page.dynamic_metadata({}, {"version": "1.2.3"}) == {
        "readme": {"content-type": "text/markdown", "text": "[there](docs/x.md)"},
        "urls": {},
    }


def test_github_variables_set_the_project_address(index_page, monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/gristmill")
    found = index_page.dynamic_metadata({}, {"version": "1.2.3"})
    assert found["readme"]["text"] == f"[there]({HOME}/blob/v1.2.3/docs/x.md)"
    assert found["urls"] == {
        "Repository": HOME,
        "Documentation": f"{HOME}/tree/main/docs",
        "Changelog": f"{HOME}/blob/main/CHANGELOG.md",
        "Issues": f"{HOME}/issues",
    }
    assert index_page.dynamic_wheel({}).keys() == found.keys()


def test_build_settings_use_the_index_page(index_page):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    made = index_page.dynamic_metadata({}, {"version": "1.2.3"})
    assert {*settings["project"]["dynamic"]} == {"version", *made}
    asked = [entry["provider"] for entry in settings["tool"]["dynamic-metadata"]]
    assert asked[-1] == {"path": ".ci", "module": "index_page"}
    passed = settings["tool"]["cibuildwheel"]["linux"]["environment-pass"]
    assert passed == ["GITHUB_REPOSITORY", "GITHUB_SERVER_URL"]
