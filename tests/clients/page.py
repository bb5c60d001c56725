"""Writes docs/clients.md from the results of the last run of each client.

python -m clients.page
"""

import json

from clients.client import ROOT, client_names, read

PAGE = ROOT / "docs" / "clients.md"
INTRODUCTION = """\
# Compatibility with other packages

Each row is a small program that uses a package from PyPI. `make clients` runs each
twice in an environment of its own: with the loader of torch or Grain, and with
Gristmill's. `make clients ONLY=lightning` runs one. The versions of all packages are in
`requirements.txt` next to the program. The programs of the two runs differ only in the
lines of [the last section](#what-changes). "Equal" means that everything that the
program yields (batches, losses, weights, metrics) has the same types, dtypes, shapes
and bits.
"""


def text(results):
    """Return the page for the results of all clients, by their names."""
    clients = [read(name) for name in client_names()]
    rows = [
        "| Package | What runs | Compared | Result | Date |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows += [_row(client, results.get(client.name)) for client in clients]
    parts = [INTRODUCTION, "\n".join(rows) + "\n"]
    details = [
        f"- **{client.title}**: {results[client.name]['detail']}"
        for client in clients
        if results.get(client.name, {}).get("detail")
    ]
    if details:
        parts += ["## What is not equal\n", "\n".join(details) + "\n"]
    parts.append("## What changes\n")
    parts += [_change(client) for client in clients]
    return "\n".join(parts)


def _row(client, result):
    link = f"[{client.title}](../tests/clients/{client.name}/program.py)"
    version = client.version() if result is None else result["version"]
    cells = [f"{link} {version}", client.subject()]
    if result is None:
        cells += ["", "not run", ""]
    else:
        outcome = result["outcome"]
        cells += [
            _compared(result),
            outcome if outcome == "equal" else f"**{outcome}**",
        ]
        cells += [result["date"]]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _compared(result):
    """Return how much of two runs was compared."""
    for unit in ("batches", "values"):
        if result.get(unit):
            return f"{result[unit]} {unit}"
    return ""


def _change(client):
    if client.drop_in:
        return f"**{client.title}**: run by `python -m gristmill.drop_in program.py`.\n"
    lines = []
    for old, new in client.changes.items():
        lines += [f"-{old}", *(f"+{line}" for line in new.splitlines())]
    return "\n".join([f"**{client.title}**\n", "```diff", *lines, "```\n"])


def load():
    """Return the kept results by the names of the clients."""
    paths = [read(name).result for name in client_names()]
    kept = [json.loads(path.read_text()) for path in paths if path.is_file()]
    return {result["client"]: result for result in kept}


def write():
    PAGE.write_text(text(load()))


if __name__ == "__main__":
    write()
