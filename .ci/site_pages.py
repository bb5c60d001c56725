"""Adds pages to the site besides `docs`: pages of the root and the API reference.

Links that work in the repository also work in the site.  Files outside of `docs` are
in the folder `project` of the site.
"""

import pathlib
import posixpath
import re

import site_names
import site_reference
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
# A picture alone in its paragraph.
PICTURE = re.compile(r"^(!\[[^\]]*\]\(([^)\s]+\.svg)\))$", re.MULTILINE)
FIRST = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
STYLE = "site.css"
# The list of pages that readers see: titles, and the pages or folders under each.
PAGES = {
    "First steps": "install quickstart recipes datasets checkpointing",
    "In operation": "seeing-it-work troubleshooting",
    "What you read": "images text record-files convert",
    "Where it runs": "torch cluster scale",
    "Coming from others": "from-grain differences-from-grain peers/",
    "Reference": "reference/gristmill reference/",
    "How it works": "speed architecture glossary decisions/ formats/",
    "Project": "project/benchmarks/ project/CHANGELOG project/ versions releasing",
}
# These folders get a separate list with this title.  The pages of other folders are
# listed directly.
FOLDERS = {
    "decisions/": "Decisions",
    "formats/": "Formats",
    "peers/": "Other loaders",
    "project/benchmarks/": "Benchmarks",
    "reference/": "Modules",
}


def on_files(files, config):
    """Add the pages that are not in `docs`."""
    pending = [*FIRST, "benchmarks/README.md"]
    pending += [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    known = set()
    while pending:
        path = pending.pop()
        if path in known:
            continue
        known.add(path)
        if not path.startswith("docs/"):
            content = (ROOT / path).read_bytes()
            files.append(File.generated(config, site_path(path), content=content))
        if path.endswith(".md"):
            pending += linked(path)
    for module in site_names.public_modules():
        page = site_reference.page_of(module)
        uri = f"reference/{module}.md"
        files.append(File.generated(config, uri, content=page))
    style = (ROOT / ".ci" / STYLE).read_text()
    files.append(File.generated(config, STYLE, content=style))
    config.nav = listed(files)
    return files


def on_nav(nav, config, files):
    """Raise an error if a page is missing from the list of pages."""
    missing = [page.file.src_uri for page in nav.pages if page.parent is None]
    if missing != ["index.md"]:
        raise PluginError(f"Pages that PAGES of {__file__} does not name: {missing}")


def listed(files):
    """Return the list of pages in the order of `PAGES`."""
    uris = [file.src_uri for file in files.documentation_pages()]
    uris.sort(key=lambda uri: uri.removesuffix(".md"))
    seen = {"index.md"}

    def entries(name):
        inside = [uri for uri in uris if uri.startswith(name) and name[-1] == "/"]
        inside = [uri for uri in inside or [f"{name}.md"] if uri not in seen]
        seen.update(inside)
        if name not in FOLDERS:
            return inside
        first = f"{name}README.md"
        if first in inside:
            inside.remove(first)
            inside.insert(0, {"Overview": first})
        return [{FOLDERS[name]: inside}]

    found = {
        title: [entry for name in names.split() for entry in entries(name)]
        for title, names in PAGES.items()
    }
    return ["index.md", *({title: inside} for title, inside in found.items())]


def on_page_markdown(markdown, page, **_):
    """Change links to files of the repository into links to pages of the site."""
    path = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def moved(link):
        target = resolved(path, link[1])
        if not (ROOT / target).is_file():
            return link[0]
        return posixpath.relpath(site_path(target), here or ".") + (link[2] or "")

    return LINK.sub(moved, PICTURE.sub(r"[\1](\2)", markdown))


def on_page_content(html, page, **_):
    """Raise an error if a page of the reference lacks names or has wrong ones."""
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if folder == "reference":
        site_reference.check(name, html)
    return html


def linked(path):
    """Return the files that a page links to."""
    found = LINK.finditer((ROOT / path).read_text())
    targets = [resolved(path, link[1]) for link in found]
    return [target for target in targets if (ROOT / target).is_file()]


def resolved(path, link):
    """Return the path in the repository of a link's target."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def site_path(path):
    """Return the path in the site of a file of the repository."""
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


def repository_path(uri):
    """Return the file of the repository from which a page of the site is made."""
    if uri == "index.md":
        return "README.md"
    return uri.removeprefix("project/") if uri.startswith("project/") else f"docs/{uri}"
