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
and bits. The numbers count the values that were compared and the batches that the
loaders gave. The last column has the commit of Gristmill. If a program or the version
of a package changes, its row is "not run" until the next run.
"""


def text(results):
    """Return the page for the results of all clients, by their names."""
    clients = [read(name) for name in client_names()]
    rows = [
        "| Package | What runs | Compared | Result | Last run |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows += [_row(client, results.get(client.name)) for client in clients]
    parts = [INTRODUCTION, "\n".join(rows) + "\n"]
    details = [
        f"**{client.title}**\n\n```text\n{results[client.name]['detail']}\n```\n"
        for client in clients
        if results.get(client.name, {}).get("detail")
    ]
    if details:
        parts += ["## What is not equal\n", *details]
    parts.append("## What changes\n")
    parts += [_change(client) for client in clients]
    return "\n".join(parts)


def _row(client, result):
    link = f"[{client.title}](../tests/clients/{client.name}/program.py)"
    version = client.version() if result is None else result["version"]
    cells = [f"{link} {version}", client.subject()]
    if result is None:
        cells += ["", "**not run**", ""]
    else:
        outcome = result["outcome"]
        cells += [
            _compared(result),
            outcome if outcome == "equal" else f"**{outcome}**",
        ]
        cells += [_last_run(result)]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _compared(result):
    """Return how much of two runs was compared."""
    units = [unit for unit in ("values", "batches") if result.get(unit)]
    return ", ".join(f"{result[unit]} {unit}" for unit in units)


def _last_run(result):
    return f"{result['date']}, Python {result['python']}, {result['gristmill']}"


def _change(client):
    if client.drop_in:
        return f"**{client.title}**: run by `python -m gristmill.drop_in program.py`.\n"
    lines = []
    for old, new in client.changes.items():
        lines += [f"-{old}", *(f"+{line}" for line in new.splitlines())]
    return "\n".join([f"**{client.title}**\n", "```diff", *lines, "```\n"])


def load():
    """Return results of clients that did not change since, by their names."""
    clients = {name: read(name) for name in client_names()}
    kept = {
        name: json.loads(client.result.read_text())
        for name, client in clients.items()
        if client.result.is_file()
    }
    return {
        name: result
        for name, result in kept.items()
        if result.get("inputs") == clients[name].inputs()
    }


def write():
    PAGE.write_text(text(load()))


if __name__ == "__main__":
    write()
