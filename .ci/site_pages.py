"""What the site has beside `docs`: the pages of the root, and the API's reference.

A link that works in the repository works in the site: what it names outside of `docs`
lies in `project` there.
"""

import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pkg" / "gristmill"
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FIRST = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
# What a reader finds in the list of pages: titles, and pages or folders.
PAGES = {
    "First steps": "quickstart datasets seeing-it-work checkpointing troubleshooting",
    "What you read": "images text record-files convert",
    "Where it runs": "torch cluster scale",
    "Coming from others": "from-grain differences-from-grain peers/",
    "How it works": "architecture glossary decisions/ formats/ releasing",
    "Reference": "reference/",
    "Project": "project/",
}
REFERENCE = """# {title}

::: {module}
"""


def on_files(files, config):
    """Add the pages that do not lie in `docs`."""
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
    for module in public_modules():
        page = REFERENCE.format(title=module, module=module)
        uri = f"reference/{module}.md"
        files.append(File.generated(config, uri, content=page))
    config.nav = listed(files)
    return files


def on_nav(nav, config, files):
    """Refuse a page that readers would not find."""
    missing = [page.file.src_uri for page in nav.pages if page.parent is None]
    if missing != ["index.md"]:
        raise PluginError(f"Pages that PAGES of {__file__} does not name: {missing}")


def listed(files):
    """Return the list of pages that `PAGES` says."""
    uris = [file.src_uri for file in files.documentation_pages()]
    found = ["index.md"]
    for title, names in PAGES.items():
        entries = []
        for name in names.split():
            inside = [uri for uri in uris if uri.startswith(name) and name[-1] == "/"]
            inside.sort(key=lambda uri: uri.removesuffix(".md"))
            entries += inside or [f"{name}.md"]
        found.append({title: entries})
    return found


def on_page_markdown(markdown, page, **_):
    """Have links name what lies elsewhere in the site."""
    path = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def moved(link):
        target = resolved(path, link[1])
        if not (ROOT / target).is_file():
            return link[0]
        return posixpath.relpath(site_path(target), here or ".") + (link[2] or "")

    return LINK.sub(moved, markdown)


def linked(path):
    """Return the files that a page names by links."""
    found = LINK.finditer((ROOT / path).read_text())
    targets = [resolved(path, link[1]) for link in found]
    return [target for target in targets if (ROOT / target).is_file()]


def resolved(path, link):
    """Return the path in the repository of what a page's link names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def site_path(path):
    """Return where a file of the repository lies in the site."""
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


def repository_path(uri):
    """Return the file of the repository that a page of the site is."""
    if uri == "index.md":
        return "README.md"
    return uri.removeprefix("project/") if uri.startswith("project/") else f"docs/{uri}"


def public_modules():
    """Return the names of the modules that users import."""
    names = ["gristmill"]
    for path in sorted(PACKAGE.iterdir()):
        package = path.is_dir() and (path / "__init__.py").exists()
        if not path.name.startswith("_") and (package or path.suffix == ".py"):
            names.append(f"gristmill.{path.stem}")
    return names
