"""gristmill._hot.packing and ._hot.concat_split against their plain twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill._hot import concat_split as hot_split
from gristmill._hot import packing as hot_packing
from gristmill._slow import concat_split as slow_split
from gristmill._slow import packing as slow_packing
from packing_samples import element, features, same


class Elements:
    """An iterator with a state."""

    def __init__(self, elements: list[Any]) -> None:
        self.elements = elements
        self.index = 0

    def __iter__(self) -> Elements:
        return self

    def __next__(self) -> Any:
        if self.index == len(self.elements):
            raise StopIteration
        self.index += 1
        return self.elements[self.index - 1]

    def get_state(self) -> int:
        return self.index


NOTHING = gristmill.MapDataset.source([]).to_iter_dataset()
ODD = ({}, 5, {"a": None}, {"a": [1], "b": 1}, {"a": np.zeros(99), "b": np.zeros(99)})


@st.composite
def elements_of(draw: Any, times: int = 1) -> Any:
    """Draw features and elements, some of which have others."""
    made = draw(features(3))
    elements = [
        element(draw, made, lambda length: length * times)
        for _ in range(draw(st.integers(0, 30)))
    ]
    odd = [element(draw, draw(features(3)), lambda length: length), *ODD]
    for _ in range(draw(st.integers(0, 3))):
        elements.insert(draw(st.integers(0, len(elements))), draw(st.sampled_from(odd)))
    return made, elements


def packed(module: Any, layout: Any, elements: list[Any]) -> Any:
    """Return all that a Packer gives: rows, states, errors and their notes."""
    packer, parent, found = module.Packer(layout), Elements(elements), []
    while True:
        try:
            state, rest = packer.fill(parent)
        except Exception as error:
            found.append((type(error), str(error), getattr(error, "__notes__", None)))
            continue
        found.append((state, rest is None, len(packer)))
        if len(packer):
            batch = packer.finish()
            found += [batch.row(row) for row in range(len(batch))]
            found.append([batch.values, batch.segment_ids, batch.positions])
        if rest is None:
            return found
        assert packer.add(*rest)


@given(made=elements_of(), data=st.data(), best=st.booleans())
@settings(max_examples=200)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.slow
def test_packer_is_its_twin(made, data, best):
    made, elements = made
    names = list(made)
    dataset = (
        gristmill.experimental.BestFitPackIterDataset
        if best
        else gristmill.experimental.FirstFitPackIterDataset
    )(
        NOTHING,
        length_struct={name: made[name]["length"] for name in names},
        num_packing_bins=data.draw(st.integers(1, 70)),
        meta_features=data.draw(st.sampled_from([(), names[:1], (*names[1:], "a")])),
        max_sequences_per_bin=data.draw(st.none() | st.integers(1, 3)),
        pack_alignment_struct=dict.fromkeys(names, data.draw(st.integers(1, 3))),
        padding_struct=dict.fromkeys(names, data.draw(st.sampled_from([None, 1]))),
    )
    hot = packed(hot_packing, dataset._layout, elements)
    assert same(hot, packed(slow_packing, dataset._layout, elements))


def split(module: Any, layout: Any, elements: list[Any]) -> Any:
    """Return all that a Splitter gives: rows, rests, errors and their notes."""
    splitter, parent, found = module.Splitter(layout), Elements(elements), []
    while True:
        try:
            rows, ended = splitter.fill(parent)
        except Exception as error:
            found.append((type(error), str(error), getattr(error, "__notes__", None)))
            continue
        found += [*rows, splitter.rest(), splitter.limited_by]
        if splitter.rest() is not None:
            splitter = restored(module, layout, elements, splitter.rest())
        if ended:
            return found


def restored(module: Any, layout: Any, elements: list[Any], rest: Any) -> Any:
    """Return another Splitter with the same rest."""
    state, ranges = rest
    splitter = module.Splitter(layout)
    size = [None] * len(layout.keys) if ranges is None else ranges
    splitter.restore(elements[state], state, size)
    return splitter


@given(made=elements_of(times=3), data=st.data())
@settings(max_examples=200)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.slow
def test_splitter_is_its_twin(made, data):
    made, elements = made
    names = list(made)
    metas = data.draw(st.sampled_from([(), (), names[1:]]))
    bos = [name for name in names if name not in metas] * data.draw(st.booleans())
    handling = gristmill.experimental.BOSHandling
    dataset = gristmill.experimental.ConcatThenSplitIterDataset(
        NOTHING,
        length_struct={name: made[name]["length"] for name in names},
        meta_features=metas,
        split_full_length_features=data.draw(st.booleans()),
        bos_handling=handling.REPLACE_FIRST_TOKEN_WITH_BOS
        if bos
        else handling.DO_NOTHING,
        bos_features=bos,
        bos_token_id=1 if bos else None,
    )
    hot = split(hot_split, dataset._layout, elements)
    assert same(hot, split(slow_split, dataset._layout, elements))
