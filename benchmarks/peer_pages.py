"""Put what was measured into the pages of docs/peers, from the tables of README.md.

    python benchmarks/peer_pages.py

A page gets each row whose target names its loader, between two comments.
"""

import importlib
import pathlib
import re

HERE = pathlib.Path(__file__).parent
PAGES = HERE.parent / "docs" / "peers"
# What contestants of questions are called, by the pages' names.
NAMES = {
    "dali": ["dali"],
    "grain": [
        *("grain", "grain default", "grain (0, 0)", "grain in order"),
        *("grain batches", "grain elements", "grain [i]", "wheel"),
    ],
    "hugging-face": ["hugging face", "hugging face, torch", "iter", "indexed"],
    "ray-data": ["Ray Data", "Ray Data, in order"],
    "spdl": ["spdl"],
    "tf-data": ["tf.data service", "tensorflow", "tensorflow, counted"],
    "torch": ["torch", "torch getitems", "torchdata"],
    "webdataset": ["webdataset", "webdataset, 2 workers"],
}
ROW = re.compile(r"^\| (\w+) \| (.*?) \| (\S+) \| \w+ \|$", re.MULTILINE)
FASTER = re.compile(r"(.*?) >= \S+x as fast as (.*)")
PLACE = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)


def rows_of(page: str, tables: str) -> list[tuple[str, str, str, str]]:
    """Returns question, who is faster, than whom, and how many times."""
    rows = []
    for question, target, found in ROW.findall(tables):
        compared = FASTER.fullmatch(target)
        if compared is None:
            continue
        ours, peers = compared[1], compared[2].split(" or ")
        if set(NAMES[page]) & set(peers):
            rows.append((question, ours, " or ".join(peers), found))
    return list(dict.fromkeys(rows))


def section_of(page: str, tables: str) -> str:
    """Returns the markdown of what a page's loader was compared with."""
    lines = ["| question | | times as fast as | |", "| --- | --- | --- | --- |"]
    for question, ours, peers, found in rows_of(page, tables):
        text = importlib.import_module(f"bench_{question}").QUESTION.text
        times = float(found)
        shown = f"{times:,.0f}" if times >= 100 else f"{times:.3g}"
        lines.append(f"| {text} | {ours} | {peers} | {shown} |")
    return "\n".join(lines) + "\n"


def with_section(text: str, page: str, tables: str) -> str:
    """Returns a page's text with what was measured."""
    section = section_of(page, tables)
    return PLACE.sub(lambda place: f"{place[1]}\n{section}\n{place[2]}", text)


def main() -> None:
    tables = (HERE / "README.md").read_text()
    for page in NAMES:
        path = PAGES / f"{page}.md"
        path.write_text(with_section(path.read_text(), page, tables))


if __name__ == "__main__":
    main()
