"""With workers everything one sees of our loader is what one sees of torch's."""

import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.torch import DataLoader
from torch_loader.datasets_zoo import COLLATIONS, DATASETS, SAMPLERS
from torch_loader.watched import Case, seen

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

# Torch's loader waits for ever for a batch that cannot be pickled.
HANGS = {"leaf", "parameter"}
# Torch's has no shared memory for them.
FAILS = {"conjugate"}
STREAMS = [name for name in DATASETS if "stream" in name]
MAPS = [name for name in DATASETS if name not in STREAMS and name not in HANGS | FAILS]


def assert_equal(case):
    assert seen(DataLoader, case) == seen(torch.utils.data.DataLoader, case)


def with_workers(number, **options):
    options = {"num_workers": number, "multiprocessing_context": "fork", **options}
    return tuple(options.items())


@st.composite
def cases(draw):
    how = draw(st.sampled_from(["shuffle", "sampler", "batch_sampler", "stream"]))
    options = {
        "prefetch_factor": draw(st.sampled_from([1, 2, 5])),
        "persistent_workers": draw(st.booleans()),
    }
    if how == "shuffle":
        options["shuffle"] = draw(st.booleans())
    if how != "batch_sampler":
        options["batch_size"] = draw(st.sampled_from([None, 1, 2, 3, 64]))
        if options["batch_size"] is not None:
            options["drop_last"] = draw(st.booleans())
    samplers = st.sampled_from(list(SAMPLERS))
    return Case(
        dataset=draw(st.sampled_from(STREAMS if how == "stream" else MAPS)),
        size=draw(st.integers(1, 12)),
        sampler=draw(samplers) if how == "sampler" else None,
        batch_sampler=draw(samplers) if how == "batch_sampler" else None,
        collate_fn=draw(st.none() | st.sampled_from(list(COLLATIONS))),
        generator=draw(st.booleans()),
        options=with_workers(draw(st.integers(1, 3)), **options),
        stops=draw(st.tuples(st.none() | st.integers(1, 4), st.none())),
        asks_length=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32)),
    )


@given(cases())
@settings(max_examples=8)
def test_any_loader(case):
    assert_equal(case)


@pytest.mark.parametrize("dataset", MAPS)
def test_every_dataset(dataset):
    options = with_workers(2, shuffle=True, batch_size=4)
    assert_equal(Case(dataset, options=options, stops=(None,), seed=7))


@pytest.mark.parametrize("dataset", STREAMS)
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_every_stream(dataset, batch_size, persistent):
    options = with_workers(2, batch_size=batch_size, persistent_workers=persistent)
    assert_equal(Case(dataset, options=options, asks_length=True))


# Torch's iterator, which is not whole, complains when it is deleted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_prefetch_factor_of_0_fails_when_it_is_used():
    case = Case("ints", options=with_workers(2, prefetch_factor=0))
    text = "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
    # Torch 2.6 gives no reason.
    expected = [
        ("error", "AssertionError", text) if event[-1] == "" else event
        for event in seen(torch.utils.data.DataLoader, case)
    ]
    assert seen(DataLoader, case) == expected
