"""Tests of visualization mode: the graph of a chain as text, SVG and HTML."""

import dataclasses
import html.parser
import logging
import xml.etree.ElementTree

import grain as real_grain
import numpy as np
import pytest
from absl import flags
from absl import logging as logging_of_grain
from absl.testing import flagsaver

import gristmill as grain
from gristmill._observe import drawing, token_facts
from support.token_files import write_megatron

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def show():
    """Return a function that turns the mode on, for a folder or for the log."""
    yield lambda folder: grain.config.update(
        "py_dataset_visualization_output_dir", str(folder)
    )
    grain.config.update("py_dataset_visualization_output_dir", None)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "gristmill")
    return caplog


def records():
    return [{"a": [1, 2, 3], "b": np.zeros((2, 3))}] * 10


GRAPH = """\
Grain Dataset graph:

SourceMapDataset(source=list)
  ││
  ││  \n\
  ││
  \u2572\u2571
{'a': 'list<int>[3]', 'b': 'float64[2, 3]'}

  ││
  ││  ShuffleMapDataset
  ││
  \u2572\u2571
{'a': 'list<int>[3]', 'b': 'float64[2, 3]'}

  ││
  ││  BatchMapDataset(batch_size=2, drop_remainder=False)
  ││
  \u2572\u2571
{'a': 'list<ndarray>[3, 2]', 'b': 'float64[2, 2, 3]'}
"""


def test_first_element_logs_drawing_like_grain(show, log):
    show("")
    iterator = iter(grain.MapDataset.source(records()).shuffle(1).batch(2))
    assert not log.messages
    next(iterator)
    next(iterator)
    (message,) = log.messages
    begin = message.partition("PrefetchDatasetIterator")[0]
    assert begin.startswith(GRAPH)


def test_drawing_matches_grain(show, log, monkeypatch):
    said = []
    monkeypatch.setattr(logging_of_grain, "info", lambda text, *_: said.append(text))
    with flagsaver.flagsaver():
        flags.FLAGS.mark_as_parsed()
        real_grain.config.update("py_dataset_visualization_output_dir", "")
        next(iter(chain_of(real_grain)))
    show("")
    next(iter(chain_of(grain)))
    assert log.messages[-1] == said[-1]


def double(x):
    return x["b"] * 2, len(x["a"]), "text"


def keep(x):
    return True


def chain_of(library):
    ds = library.MapDataset.source(records()).shuffle(1).repeat(2).map(double)
    return ds.to_iter_dataset().filter(keep).batch(3)


@pytest.mark.claim(
    "The graph shows only the first of several parents, and saving it to a "
    "folder raises NotImplementedError"
)
def test_all_parents_are_drawn(show, log):
    show("")
    parts = [grain.MapDataset.range(5), grain.MapDataset.range(9).map(str)]
    next(iter(grain.MapDataset.mix(parts, [3, 1]).map(lambda x: [x])))
    (message,) = log.messages
    assert "WARNING" not in message
    assert "┏ parent 0 of 2\n┃ RangeMapDataset(start=0" in message
    assert "┏ parent 1 of 2\n┃ RangeMapDataset(start=0" in message
    # The second parent has no element yet, so its declared element spec is drawn.
    assert "(no element yet)" in message
    assert message.rstrip().endswith("'list<int>[1]'")


def test_workers_report_element_specs(show, log):
    show("")
    ds = grain.MapDataset.source(records()).map(double).to_iter_dataset()
    iterator = iter(ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=1)))
    next(iterator)
    iterator.close()
    assert "('float64[2, 3]', 'int[]', 'str[]')" in log.messages[0]
    assert "no element yet" not in log.messages[0]


@pytest.mark.claim(
    "The graph shows only the first of several parents, and saving it to a "
    "folder raises NotImplementedError"
)
def test_folder_gets_svg_and_html_page(show, log, tmp_path):
    show(tmp_path / "graphs")
    parts = [grain.MapDataset.range(5), grain.MapDataset.range(9).shuffle(1)]
    ds = grain.MapDataset.mix(parts).map(lambda x: {"<x>": np.full(3, x)}).batch(2)
    next(iter(ds))
    written = sorted((tmp_path / "graphs").iterdir())
    assert [path.suffix for path in written] == [".html", ".svg"]
    assert str(written[1]) in log.messages[0]
    root = xml.etree.ElementTree.fromstring(written[1].read_text())
    texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
    assert any("MixedMapDataset[2 parents]" in text for text in texts)
    assert sum("RangeMapDataset" in text for text in texts) == 2
    assert any("{'<x>': 'int64[2, 3]'}" in text for text in texts)
    # Nodes: two sources, a shuffle, the mixture, map, batch, to_iter_dataset.
    assert len(list(root.iter(f"{SVG}title"))) == 7
    page = written[0].read_text()
    assert "&lt;x&gt;" in page and "<x>" not in page
    html.parser.HTMLParser().feed(page)


def test_each_chain_gets_its_own_files(show, log, tmp_path):
    show(tmp_path)
    for _ in range(3):
        next(iter(grain.MapDataset.range(5).batch(2)))
    assert len(list(tmp_path.iterdir())) == 6


@dataclasses.dataclass
class Node:
    name: str
    kind: str = "transform"
    spec: str = "int[]"
    parents: tuple = ()
    facts: tuple = ()


def extents(node):
    root = xml.etree.ElementTree.fromstring(drawing.to_svg(node))
    left, top, width, height = map(float, root.get("viewBox").split())
    return root, left, top, left + width, top + height


@pytest.mark.parametrize("name", ['a < b & "c"', "x" * 500, "tab\tand\x00zero", ""])
def test_any_name_can_be_drawn(name):
    root, *_ = extents(Node(name, spec=name))
    drawn = "".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    letters = [c for c in name if c.isprintable() and c != " "]
    assert [c for c in drawn if c != " "] == letters * 2


def test_boxes_lie_inside_and_do_not_overlap():
    leaves = tuple(Node(f"source {i} " * (i + 1), "read") for i in range(4))
    deep = Node("deep", parents=(Node("deeper", parents=leaves[:1]),))
    root, left, top, right, bottom = extents(
        Node("mix", "order", parents=(deep, *leaves[1:]))
    )
    boxes = list(rectangles(root, 0.0, 0.0))
    assert len(boxes) == 7
    for x, y, width, height in boxes:
        assert left <= x and x + width <= right
        assert top <= y and y + height <= bottom
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart_x = a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0]
            apart_y = a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]
            assert apart_x or apart_y, (a, b)


def rectangles(node, x, y):
    """Yield (left, top, width, height) of all boxes below a node."""
    move = node.get("transform", "")
    if move:
        dx, dy = map(float, move.removeprefix("translate(").rstrip(")").split())
        x, y = x + dx, y + dy
    for child in node:
        if child.tag == f"{SVG}rect" and child.get("rx"):
            at = [float(child.get(name)) for name in ("x", "y", "width", "height")]
            yield at[0] + x, at[1] + y, at[2], at[3]
        yield from rectangles(child, x, y)


def token_sets(folder):
    write_megatron(folder / "a", [[1] * n for n in (3, 5, 2, 40)], np.uint16)
    write_megatron(folder / "b", [[1] * n for n in (7, 7)], np.uint16)
    sources = [grain.sources.MegatronDataSource(folder / name) for name in "ab"]
    return [grain.MapDataset.source(source) for source in sources]


def test_tokens_and_density_of_packed_rows_are_shown(show, log, tmp_path):
    rows = token_sets(tmp_path)[0].pack(8, long_documents="drop")
    page = rows._repr_html_()
    assert ">4 documents, 50 tokens<" in page
    assert ">2 rows, 10 tokens, 62.50% full<" in page
    assert ">dropped documents: 1 (40 tokens)<" in page
    show("")
    next(iter(rows))
    text = "\n".join(log.messages)
    assert "(source=MegatronDataSource)\n4 documents, 50 tokens\n  ││" in text
    assert "\n  ││  2 rows, 10 tokens, 62.50% full\n" in text


def test_shares_of_token_mixtures_are_shown(tmp_path):
    parts = dict(zip(["code", "web"], token_sets(tmp_path), strict=True))
    points = [(0, {"code": 3, "web": 1}), (10, {"code": 1, "web": 1})]
    mixed = grain.MapDataset.mix(parts, points[0][1], unit="tokens")
    page = mixed._repr_html_()
    assert ">4 documents, 50 tokens<" in page and ">2 documents, 14 tokens<" in page
    assert ">code 75.00%, web 25.00% of tokens<" in page
    schedule = grain.MixSchedule(points, unit="tokens")
    page = grain.MapDataset.mix(parts, schedule, unit="tokens")._repr_html_()
    assert "after 10 tokens: code 50.00%, web 50.00%" in page


def test_rows_of_many_documents_are_not_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(token_facts, "MAX_COUNTED_DOCUMENTS", 3)
    page = token_sets(tmp_path)[0].pack(8)._repr_html_()
    assert ">50 tokens in rows<" in page and "full" not in page


def test_text_goes_to_stderr_if_log_level_is_too_high(capsys, monkeypatch):
    logger = logging.getLogger("gristmill")
    monkeypatch.setattr(logger, "level", logging.WARNING)
    logger.manager._clear_cache()
    from gristmill._base import log

    log.show("seen")
    assert capsys.readouterr().err == "seen\n"
    logger.manager._clear_cache()


def test_box_without_parents_is_drawn_as_text():
    box = drawing.Box("source", "read", "'int[]'", ())
    assert (
        drawing.to_text(box) == "source\n  ││\n  ││  \n  ││\n  \u2572\u2571\n'int[]'\n"
    )
