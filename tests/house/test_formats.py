"""The bytes in docs/formats equal those that the code writes."""

import os
import re

import numpy as np

from gristmill import sources
from gristmill._hot import slot_writer
from gristmill._observe import shared_words
from gristmill.sources import _parquet_footers
from gristmill.sources._columns import ColumnFacts
from support.places import ROOT

FORMATS = ROOT / "docs" / "formats"
MEMORY = ROOT / "csrc" / "core" / "memory"
UNIT_WORD = MEMORY / "unit_word.hpp"
STRUCTURES = {
    "Control": shared_words.CONTROL,
    "WorkerCell": shared_words.CELL,
    "Unit": shared_words.UNIT,
}


def example(page):
    """Return the bytes of a page's example, keyed by offset."""
    rows = re.findall(
        r"^\| (\d+) \| `([0-9a-f ]+)` \|", (FORMATS / page).read_text(), re.M
    )
    assert rows
    return {int(at): bytes.fromhex(given) for at, given in rows}


def numbered(page, heading):
    """Return the numbers and words of the first two columns of a page's table."""
    text = (FORMATS / page).read_text()
    table = text.partition(heading)[2].partition("\n\n")[0]
    return re.findall(r"^\| (\d+) \| (\w+)", table, re.M)


def test_slot_is_written_as_described():
    raw = np.full(4096 + 64, 0xA5, np.uint8)
    start = -int(raw.ctypes.data) % 64
    writer = slot_writer.SlotWriter(int(raw.ctypes.data) + start, 4096)
    x = writer.empty(3, np.int16)
    x[:] = [10, 20, 30]
    output = ({"x": x, "label": 7}, np.array([5], np.int64), (1,))
    used = slot_writer.encode(writer, [output], None)
    slot = raw[start : start + used].tobytes()
    described = example("slot.md")
    for at, given in described.items():
        assert slot[at : at + len(given)] == given, at
    # Only the end of the header and the alignment padding are not described.
    ends = {at + len(given) for at, given in described.items()}
    assert max(ends) == used
    assert ends - {*described} == {24, 70, 228, used}


def test_index_is_written_as_described(tmp_path):
    from support import tf_record_files

    file = tf_record_files.write(tmp_path / "two.tfrecord", [b"abc", bytes(200)])
    written_ns = 1_700_000_000 * 10**9
    os.utime(file, ns=(written_ns, written_ns))
    assert len(sources.TFRecordDataSource(file)) == 2
    found = (tmp_path / ".two.tfrecord.gristmill-index").read_bytes()
    described = example("index.md")
    assert found == b"".join(described[at] for at in sorted(described))


def test_footers_are_stored_as_described(tmp_path, monkeypatch):
    page = (FORMATS / "footers.md").read_text()
    (described,) = re.findall(r"```text\n(.*)\n```", page, re.S)
    monkeypatch.setattr(_parquet_footers, "_writer", lambda: "25.0.0")
    stamps = [(500, 1_700_000_000 * 10**9), (508, 1_700_000_000 * 10**9)]
    footers = [
        _parquet_footers.Footer(np.array([rows]), {"x": "int64"}, facts)
        for rows, facts in ((3, {"x": ColumnFacts(has_nulls=True)}), (4, {}))
    ]
    place = str(tmp_path / "new" / "kept.json")
    _parquet_footers.save_footers(place, stamps, footers)
    with open(place) as file:
        assert file.read() == described


def test_unit_states_equal_the_core():
    text = UNIT_WORD.read_text()
    body = re.search(r"enum class UnitState .*?\{(.*?)\};", text, re.S)[1]
    names = [name.lower() for name in re.findall(r"\bk(\w+),", body)]
    described = [
        (int(number), word) for number, word in numbered("unit.md", "| state | is |")
    ]
    assert described == list(enumerate(names))


def test_unit_word_has_the_layout_of_the_core():
    text = UNIT_WORD.read_text()
    widths = re.search(
        r"id (\d+) \| attempt (\d+) \| state (\d+) \| holder (\d+)", text
    )
    top, described = 64, []
    for width in map(int, widths.groups()):
        described.append(f"| {top - width}-{top - 1} |")
        top -= width
    page = (FORMATS / "unit.md").read_text()
    assert all(row in page for row in described)
    assert 3 << 24 | 1 << 16 | 2 << 12 | 2 == 0x0301_2002
    assert "0x0301_2002" in page


def test_shared_word_offsets_equal_the_core():
    text = (MEMORY / "control.cpp").read_text()
    found = re.findall(r"offsetof\((\w+), (\w+)\) == (\d+)", text)
    said = {(struct, field): int(at) for struct, field, at in found}
    # Offsets of structures that are inside other structures.
    inside = {
        "Task": ("Task", said.pop(("Unit", "task"))),
        "Counts": ("WorkerCell", said.pop(("WorkerCell", "counts"))),
    }
    known = {
        ("Task" if name == "Unit" and field in ("stream", "first", "count") else name)
        + f".{field}": at
        for name, structure in STRUCTURES.items()
        for field, (_, at) in structure.fields.items()
    }
    placed = {}
    for (struct, field), at in said.items():
        name, begin = inside.get(struct, (struct, 0))
        placed[f"{name}.{field}"] = begin + at
    assert known == placed
    sizes = {
        name: int(size) for name, size in re.findall(r"sizeof\((\w+)\) == (\d+)", text)
    }
    assert sizes == {name: each.itemsize for name, each in STRUCTURES.items()}
    layout = re.search(r"kLayout = (\d+);", (MEMORY / "control.hpp").read_text())
    assert int(layout[1]) == shared_words.LAYOUT
