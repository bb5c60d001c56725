"""Cut a release, and print its changes.

    python .ci/release.py cut 0.3.0
    python .ci/release.py notes v0.3.0

`cut` writes the version to the package, and moves the section "Unreleased" of
CHANGELOG.md under a heading with the version and the date.  `notes` prints the section
of a tag's version.  It fails if the tag differs from the version of the sources.
"""

import datetime
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = re.compile(r'(?<=^__version__ = ")[\d.]+(?="$)', re.MULTILINE)
SECTION = re.compile(r"^## \[(.*?)\].*\n((?:(?!## \[).*\n?)*)", re.MULTILINE)


def numbers(version):
    """Return the three numbers of a version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"{version} is no version such as 0.3.0.")
    return tuple(map(int, version.split(".")))


def cut(version, root=ROOT):
    """Write the version to the package, and the version and date to the changelog."""
    changelog, package = root / "CHANGELOG.md", root / "pkg/gristmill/__init__.py"
    text = changelog.read_text()
    (unreleased, changes), *released = SECTION.findall(text)
    if unreleased != "Unreleased" or not changes.strip():
        sys.exit("CHANGELOG.md begins with no changes that are unreleased.")
    if released and numbers(version) <= numbers(released[0][0]):
        sys.exit(f"{version} does not come after {released[0][0]}.")
    heading = "## [Unreleased]\n"
    today = datetime.date.today().isoformat()
    text = text.replace(heading, f"{heading}\n## [{version}] - {today}\n", 1)
    changelog.write_text(text)
    package.write_text(VERSION.sub(version, package.read_text()))


def notes(tag, root=ROOT):
    """Return the section of CHANGELOG.md for a tag."""
    (version,) = VERSION.findall((root / "pkg/gristmill/__init__.py").read_text())
    if tag != f"v{version}":
        sys.exit(f"The tag {tag} is not v{version}, the version of the sources.")
    sections = dict(SECTION.findall((root / "CHANGELOG.md").read_text()))
    if version not in sections:
        sys.exit(f"CHANGELOG.md has no section of {version}: cut it first.")
    return sections[version].strip()


if __name__ == "__main__":
    said = {"cut": cut, "notes": notes}[sys.argv[1]](sys.argv[2])
    if said:
        print(said)
