"""The README and the URLs that an index such as PyPI shows for a release.

This is a provider for pyproject.toml's [[tool.dynamic-metadata]].  The address of the
repository comes from the environment of GitHub's workflows.  There, links of README to
files are changed to links to the files of the release.  Elsewhere, README does not
change, and there are no URLs.
"""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGE = re.compile(r"(!\[[^]]*\]\()(?!https?:)")
LINK = re.compile(r"(?<=\]\()(?!https?:|#)(?=[^)]+\))")


def home():
    """Return the address of the repository, or None."""
    if "GITHUB_REPOSITORY" not in os.environ:
        return None
    return "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}".format_map(os.environ)


def urls_of(address):
    """Return [project.urls] for a repository at an address."""
    return {
        "Repository": address,
        "Documentation": f"{address}/tree/main/docs",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def readme_of(text, address, version):
    """Return README with absolute links."""
    text = IMAGE.sub(rf"\1{address}/raw/v{version}/", text)
    return LINK.sub(f"{address}/blob/v{version}/", text)


def dynamic_metadata(settings, project):
    """Return `readme` and `urls` of [project]; scikit-build-core calls this."""
    text, urls = (ROOT / "README.md").read_text(), {}
    if address := home():
        text = readme_of(text, address, project["version"])
        urls = urls_of(address)
    return {"readme": {"content-type": "text/markdown", "text": text}, "urls": urls}


def dynamic_wheel(settings):
    """Return the fields that may differ in a wheel that is built from an sdist."""
    return {"readme": True, "urls": True}
