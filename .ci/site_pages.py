"""Adds pages to the site besides `docs`: pages of the root and the API reference.

Links that work in the repository also work in the site.  Files outside of `docs` are
in the folder `project` of the site.  A notebook is a page with its code and what that
printed.
"""

import json
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
FIRST = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
STYLE = "site.css"
NOTEBOOK = ".ipynb"
# The list of pages that readers see: titles, and the pages or folders under each.
# Generated pages may be missing.
PAGES = {
    "First steps": "install quickstart project/examples/digits recipes guarantees",
    "Switching": "torch from-grain differences-from-grain clients peers/",
    "Your data": "datasets images text record-files convert",
    "Running": "checkpointing seeing-it-work many-ranks cluster scale troubleshooting",
    "Reference": "reference/gristmill reference/",
    "How it works": "speed architecture glossary decisions/ formats/",
    "Project": "versions project/benchmarks/ project/CHANGELOG project/ releasing",
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
            if path.endswith(NOTEBOOK):
                content = notebook_page(json.loads(content))
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
    listed_pages = {page.file.src_uri for page in nav.pages}
    uris = {file.src_uri for file in files.documentation_pages()}
    if missing := sorted(uris - listed_pages):
        raise PluginError(f"Pages that PAGES of {__file__} does not name: {missing}")


def listed(files):
    """Return the list of pages in the order of `PAGES`."""
    uris = [file.src_uri for file in files.documentation_pages()]
    uris.sort(key=lambda uri: uri.removesuffix(".md"))
    seen = {"index.md"}

    def entries(name):
        inside = [uri for uri in uris if uri.startswith(name) and name[-1] == "/"]
        inside = [
            uri for uri in inside or [f"{name}.md"] if uri in uris and uri not in seen
        ]
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
    return [{"Home": "index.md"}, *({title: inside} for title, inside in found.items())]


def on_page_markdown(markdown, page, **_):
    """Remove comments, and change links to files into links to pages of the site."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["toc"]
    path = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def moved(link):
        target = resolved(path, link[1])
        if not (ROOT / target).is_file():
            return link[0]
        return posixpath.relpath(site_path(target), here or ".") + (link[2] or "")

    markdown = COMMENT.sub("", markdown)
    return LINK.sub(moved, PICTURE.sub(r"[\1](\2)", markdown))


def on_page_content(html, page, **_):
    """Raise an error if a page of the reference lacks names or has wrong ones."""
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if folder == "reference":
        site_reference.check(name, html)
    return html


def notebook_page(notebook):
    """Return a notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            printed = [line for output in cell["outputs"] for line in output["text"]]
            parts.append(f"```python\n{source}\n```")
            parts.append(f"```text\n{''.join(printed).rstrip()}\n```")
    return "\n\n".join(parts)


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
    if path.endswith(NOTEBOOK):
        path = path.removesuffix(NOTEBOOK) + ".md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


def repository_path(uri):
    """Return the file of the repository from which a page of the site is made."""
    return uri.removeprefix("project/") if uri.startswith("project/") else f"docs/{uri}"
