"""What an index such as PyPI shows beside the files: README, and where the project is.

A provider of pyproject.toml's [[tool.dynamic-metadata]].  Where the repository is,
nothing here says: GitHub tells its workflows.  There, links of README that name files
lead to those of the release; elsewhere they stay as they are, without addresses.
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
    """Return what [project.urls] has for a repository at an address."""
    return {
        "Repository": address,
        "Documentation": f"{address}/tree/main/docs",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def readme_of(text, address, version):
    """Return README with links that lead somewhere from any page."""
    text = IMAGE.sub(rf"\1{address}/raw/v{version}/", text)
    return LINK.sub(f"{address}/blob/v{version}/", text)


def dynamic_metadata(settings, project):
    """Return `readme` and `urls` of [project]: scikit-build-core calls it."""
    text, urls = (ROOT / "README.md").read_text(), {}
    if address := home():
        text = readme_of(text, address, project["version"])
        urls = urls_of(address)
    return {"readme": {"content-type": "text/markdown", "text": text}, "urls": urls}


def dynamic_wheel(settings):
    """Say that they may differ in a wheel that somebody builds from an sdist."""
    return {"readme": True, "urls": True}
