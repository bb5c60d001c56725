"""Tests of reprs of public objects, and of drawings and tables for notebooks."""

import html.parser
import importlib
import inspect
import re
import xml.etree.ElementTree

import numpy as np
import orbax.checkpoint  # noqa: F401 - Defines CheckpointSave.
import pytest
import torch
from IPython.core.formatters import DisplayFormatter

import gristmill as grain
import gristmill.jax
import gristmill.torch
from gristmill import experimental, transforms
from gristmill._base.object_repr import MAX_VALUE_LENGTH, value_text
from gristmill._base.report import Advice, Report, Stage
from house.test_exports import PUBLIC

RANGE = grain.MapDataset.range(10)
ELEMENTS = RANGE.to_iter_dataset()
SHARD = grain.ShardOptions(1, 2)
EXAMPLE_FEATURES = {"x": transforms.FixedLen((), np.int64)}


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index * index


class Half(grain.MapTransform):
    def map(self, element):
        return element // 2


def loader(**options):
    return grain.DataLoader(
        data_source=np.zeros((10, 3)),
        sampler=grain.IndexSampler(10, num_epochs=1, seed=1),
        operations=[Half(), grain.Batch(4)],
        **options,
    )


OF_LOADER = (
    "data_source=float64[10,3], sampler=IndexSampler(num_records=10,"
    " shard_options=NoSharding(shard_index=0, shard_count=1, drop_remainder=False),"
    " shuffle=False, num_epochs=1, seed=1), operations=[Half, Batch(batch_size=4,"
    " drop_remainder=False, batch_fn=None)], worker_count=0"
)
# Objects and their reprs. If a text ends with "...", only the beginning is compared.
TEXTS = [
    (loader(), f"DataLoader({OF_LOADER})"),
    (
        loader(streams=2, on_error="skip"),
        f"DataLoader({OF_LOADER}, streams=2, on_error='skip')",
    ),
    (iter(loader()), "DataLoaderIterator(DataLoader(data_source=float64[10,3], ..."),
    (
        grain.load({"x": np.zeros((4, 2), np.int8)}, num_epochs=1),
        "DataLoader(data_source=TableSource({'x': int8[4,2]}), ...",
    ),
    (
        grain.load(list(range(1000))),
        "DataLoader(data_source=[0, 1, 2, 3, 4, 5, ...], sampler=IndexSampler(...",
    ),
    (RANGE, "RangeMapDataset(start=0, stop=10, step=1)"),
    (RANGE.shuffle(3), "ShuffleMapDataset(seed=3)"),
    (RANGE.seed(3), "WithSeedMapDataset(seed=3)"),
    (RANGE.map(Half()), "MapMapDataset(transform=Half)"),
    (RANGE[2:8:3], "SliceMapDataset[2:8:3]"),
    (RANGE.batch(4), "BatchMapDataset(batch_size=4, drop_remainder=False)"),
    (
        grain.MapDataset.concatenate([RANGE, RANGE[:3]]),
        "ConcatenateMapDataset(parent_lengths=[10, 3])",
    ),
    (ELEMENTS.batch(4), "BatchIterDataset(batch_size=4, drop_remainder=False)"),
    (iter(ELEMENTS.batch(4)), "BatchDatasetIterator(batch_size=4, ..."),
    (
        experimental.WindowShuffleMapDataset(RANGE, window_size=4, seed=1),
        "WindowShuffleMapDataset(window_size=4, seed=1)",
    ),
    (
        experimental.FirstFitPackIterDataset(
            ELEMENTS, length_struct={"x": 8}, num_packing_bins=2
        ),
        "FirstFitPackIterDataset(length_struct={'x': 8}, num_packing_bins=2,"
        " meta_features=())",
    ),
    (experimental.ParquetIterDataset("a.parquet"), "ParquetIterDataset('a.parquet')"),
    (experimental.LimitIterDataset(ELEMENTS, 3), "LimitIterDataset(count=3)"),
    (iter(experimental.LimitIterDataset(ELEMENTS, 3)), "LimitDatasetIterator(count=3)"),
    (experimental.RngPool(3), "RngPool(seed=3)"),
    (grain.checkpoint.CheckpointHandler(), "CheckpointHandler()"),
    (
        gristmill.torch.DataLoader(Squares(), 4, shuffle=True, drop_last=True),
        "DataLoader(dataset=Squares, batch_size=4, sampler=RandomSampler,"
        " num_workers=0, drop_last=True)",
    ),
    (
        gristmill.torch.DataLoader(Squares(), batch_sampler=[[1, 2], [0]]),
        "DataLoader(dataset=Squares, batch_sampler=[[1, 2], [0]], num_workers=0)",
    ),
    (
        gristmill.torch.StatefulDataLoader(torch.zeros(4, 5)),
        "StatefulDataLoader(dataset=torch.float32[4,5], batch_size=1,"
        " sampler=SequentialSampler, num_workers=0)",
    ),
    (
        iter(gristmill.torch.DataLoader(Squares(), 4)),
        "SingleProcessIterator(dataset=Squares, num_workers=0, num_yielded=0)",
    ),
    (gristmill.torch.as_tensors([1, 2]), "TensorIterator(list_iterator)"),
    (gristmill.torch.AsIterable(RANGE), f"AsIterable({RANGE!r})"),
    (gristmill.jax.prefetch_to_device(ELEMENTS), "DevicePrefetch(..."),
]


@pytest.mark.parametrize(
    ("thing", "text"), TEXTS, ids=[type(thing).__name__ for thing, _ in TEXTS]
)
def test_repr_is_one_line_with_main_arguments(thing, text):
    if text.endswith("..."):
        assert repr(thing).startswith(text.removesuffix("..."))
    else:
        assert repr(thing) == text


# Classes for users to subclass. As in Grain, subclasses define the repr.
BASES = {
    "BlockMap",
    "Checkpointable",
    "DatasetSelectionMap",
    "Filter",
    "FlatMap",
    "Map",
    "MapWithIndex",
    "RandomMap",
    "TfRandomMap",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_class_has_its_own_repr(module):
    found = importlib.import_module(module)
    classes = [getattr(found, name) for name in dir(found)]
    without = {
        cls.__name__
        for cls in classes
        if inspect.isclass(cls) and not getattr(cls, "_is_protocol", False)
        if cls.__repr__ is object.__repr__
    }
    assert without <= BASES


def test_long_values_are_cut():
    assert len(value_text("x" * 10_000)) <= MAX_VALUE_LENGTH
    assert value_text([0] * 10_000) == "[0, 0, 0, 0, 0, 0, ...]"
    assert value_text(np.zeros((2, 3), np.int8)) == "int8[2,3]"
    assert value_text(np.int64(3)) == "np.int64(3)"
    assert value_text(test_long_values_are_cut) == "test_long_values_are_cut"
    assert value_text({"a": np.zeros(3)}) == "{'a': float64[3]}"


def test_value_with_multiline_repr_is_one_line():
    class Table:
        def __repr__(self):
            return "a  b\n1  2"

    assert value_text(Table()) == "a b 1 2"


class Third(grain.IterDataset):
    """A user-defined node whose str is made from its repr."""

    def __init__(self, parent, every):
        super().__init__(parent)
        self._every = every

    def __iter__(self):
        return iter(self._parent)

    def __str__(self):
        return f"a {self!r}"


def test_user_defined_node_shows_class_and_attributes():
    assert repr(Third(ELEMENTS, 3)) == "Third(every=3)"
    printed = str(Third(ELEMENTS, 3)).split("\n")
    assert printed == ["a Third(every=3)"]
    assert str(Third(ELEMENTS, 3).batch(2)).split("\n")[1] == "a Third(every=3)"


def test_chain_prints_each_node_above_its_parents():
    parts = [RANGE.shuffle(1).map(Half()), RANGE.seed(3)]
    ds = grain.MapDataset.mix(parts).to_iter_dataset(grain.ReadOptions(2, 4)).batch(4)
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)).map(str)
    assert str(ds).split("\n") == [
        "MapIterDataset(transform=str)",
        "ProcessPrefetchIterDataset(num_workers=2, streams=2)",
        "BatchIterDataset(batch_size=4, drop_remainder=False)",
        "PrefetchIterDataset(read_options=ReadOptions(num_threads=2,"
        " prefetch_buffer_size=4), allow_nones=False)",
        "MixedMapDataset(parent_lengths=[10, 10], selection_map="
        "SelectionWithProportionsMap(proportions=(1, 1), length=20))",
        "- MapMapDataset(transform=Half)",
        "  ShuffleMapDataset(seed=1)",
        "  RangeMapDataset(start=0, stop=10, step=1)",
        "- WithSeedMapDataset(seed=3)",
        "  RangeMapDataset(start=0, stop=10, step=1)",
    ]


def test_very_long_chain_prints_first_nodes():
    lines = str(grain.MapDataset.concatenate([RANGE] * 1000)).split("\n")
    assert len(lines) == 101
    assert lines[-1] == "..."
    assert len(lines[0]) < 310


def test_node_with_repr_made_from_str_can_be_printed():
    class Circular(grain.MapDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return index

        def __repr__(self):
            return f"<{self}>"

    assert str(Circular()) == "Circular"
    assert repr(Circular()) == "<Circular>"


def test_user_repr_adds_no_line_to_a_chain():
    class Lines(grain.MapTransform):
        def map(self, element):
            return element

        def __repr__(self):
            return "a\nb"

    assert str(RANGE.map(Lines())).split("\n")[0] == "MapMapDataset(transform=a b)"


def test_node_without_base_init_shows_class():
    class Bare(grain.DatasetIterator):
        def __init__(self):
            pass

        def __next__(self):
            raise StopIteration

        def get_state(self):
            return {}

        def set_state(self, state):
            pass

    assert repr(Bare()) == "Bare()"
    assert str(Bare()) == "Bare()"


# Notebooks


class Checker(html.parser.HTMLParser):
    """Checks that all tags are closed in order, and collects tags and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


class Hostile(grain.MapTransform):
    def map(self, element):
        raise AssertionError("a drawing computes no element")

    def __repr__(self):
        return "<script>alert('&')</script>\0"


def shown(thing):
    """Return the formats in which a notebook shows the last value of a cell."""
    formats, _ = DisplayFormatter().format(thing)
    return formats


def test_dataset_is_drawn_with_all_its_nodes():
    parts = [RANGE.shuffle(1).map(Hostile()), RANGE.map(Hostile())]
    ds = grain.MapDataset.mix(parts).to_iter_dataset().batch(4)
    formats = shown(ds)
    assert formats["text/plain"] == repr(ds)
    found = Checker(formats["text/html"])
    assert "script" not in found.tags
    assert found.tags.count("svg") == 1
    # The title of each node is its full name.
    svg = re.search("<svg.*</svg>", formats["text/html"], re.DOTALL)[0]
    titles = xml.etree.ElementTree.fromstring(svg).iter(
        "{http://www.w3.org/2000/svg}title"
    )
    hostile = "MapMapDataset(transform=<script>alert('&')</script> )"
    assert [title.text for title in titles] == [
        repr(RANGE),
        "ShuffleMapDataset(seed=1)",
        hostile,
        repr(RANGE),
        hostile,
        repr(ds._parent._parent),
        repr(ds._parent),
        repr(ds),
    ]


def test_drawing_shows_known_element_spec():
    formats = shown(RANGE.batch(4, drop_remainder=True))
    assert "ShapeDtypeStruct(shape=(4,), " in "".join(
        Checker(formats["text/html"]).texts
    )


def test_chain_in_workers_is_drawn():
    ds = ELEMENTS.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)).batch(4)
    texts = "".join(Checker(shown(ds)["text/html"]).texts)
    assert "ProcessPrefetchIterDataset" in texts
    assert "RangeMapDataset" in texts


LOADERS = [
    (
        loader(streams=2),
        [
            ("data_source", "float64[10,3]"),
            ("operations", "Half"),
            ("operations", "Batch(batch_size=4, drop_remainder=False, batch_fn=None)"),
            ("worker_count", "0"),
            ("streams", "2"),
        ],
    ),
    (
        gristmill.torch.DataLoader(Squares(), 4, shuffle=True),
        [
            ("dataset", "Squares"),
            ("batch_size", "4"),
            ("sampler", "RandomSampler"),
            ("num_workers", "0"),
        ],
    ),
]


@pytest.mark.parametrize(("made", "cells"), LOADERS, ids=["grain", "torch"])
def test_loader_is_a_table_of_its_arguments(made, cells):
    formats = shown(made)
    assert formats["text/plain"] == repr(made)
    found = Checker(formats["text/html"].replace("<br>", "\n"))
    assert {*found.tags} == {"table", "caption", "tr", "th", "td"}
    texts = "".join(found.texts)
    for name, value in cells:
        assert name in found.texts
        assert value in texts


def test_user_repr_is_escaped_in_loader_table():
    made = grain.load([1], transformations=[Hostile()])
    found = Checker(shown(made)["text/html"])
    assert "script" not in found.tags
    assert "<script>alert('&')</script> " in found.texts


def test_very_long_chain_is_not_drawn():
    ds = grain.MapDataset.concatenate([RANGE] * 1000)
    assert "text/html" not in shown(ds)


def report(name):
    return Report(
        limit="transform",
        stage=name,
        seconds=1.0,
        outputs=10,
        outputs_per_s=10.0,
        bytes_per_s=0.0,
        waited=0.5,
        p50_s=1e-3,
        p95_s=2e-3,
        p99_s=3e-3,
        stages=(
            Stage(name, "transform", 0.75, 1.5e-3, 0.5, 10),
            Stage("other", "read", 0.25, 1e-3, 1.0, 10),
        ),
        advice=(Advice("use <b>workers</b>", 2.0),),
    )


def test_report_is_a_table():
    hostile = "</td><script>x & y</script>" + "z" * 100
    formats = shown(report(hostile))
    found = Checker(formats["text/html"])
    assert {*found.tags} == {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}
    cells = [text for text in found.texts if text != "\n"]
    assert cells[0] == f"Limit: transform, {hostile}"
    assert cells[3:8] == ["waited for", "per output", "computing", "does", "stage"]
    assert cells[8:18] == [
        *("75.0%", "1.50ms", "50%", "transform", hostile),
        *("25.0%", "1.00ms", "100%", "read", "other"),
    ]
    assert cells[18:] == ["Advice: use <b>workers</b>"]


def test_report_without_stages_has_no_table():
    found = Checker(iter(loader()).report()._repr_html_())
    assert {*found.tags} == {"div", "p"}
