"""Tests that our loader with workers behaves exactly like torch's."""

import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data.datapipes.iter import IterableWrapper

from gristmill.torch import DataLoader
from support import read_only
from torch_loader.datasets_zoo import COLLATIONS, DATASETS, SAMPLERS
from torch_loader.watched import Case, seen

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

# torch's loader waits forever for a batch that cannot be pickled.
HANGS = {"leaf", "parameter"}
# torch's loader cannot move these to shared memory.
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
def test_random_loaders_match_torch(case):
    assert_equal(case)


@pytest.mark.parametrize("dataset", MAPS)
def test_every_dataset_matches_torch(dataset):
    options = with_workers(2, shuffle=True, batch_size=4)
    assert_equal(Case(dataset, options=options, stops=(None,), seed=7))


@pytest.mark.parametrize("dataset", STREAMS)
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_every_stream_matches_torch(dataset, batch_size, persistent):
    options = with_workers(2, batch_size=batch_size, persistent_workers=persistent)
    assert_equal(Case(dataset, options=options, asks_length=True))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("sampler", ["eager", "batched eager"])
def test_sampler_that_draws_in_iter_matches_torch(sampler, persistent):
    options = with_workers(2, batch_size=None, persistent_workers=persistent)
    assert_equal(Case("ints", sampler=sampler, options=options))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_datapipe_shuffles_match_torch():
    def given(loader_class):
        generator = torch.Generator().manual_seed(5)
        pipe = IterableWrapper(range(12)).shuffle()
        options = dict(with_workers(2, batch_size=4, shuffle=True))
        loader = loader_class(pipe, generator=generator, **options)
        found = [batch.tolist() for _ in range(2) for batch in loader]
        return found, torch.randint(1000, (), generator=generator).item()

    assert given(DataLoader) == given(torch.utils.data.DataLoader)


class ReadOnly(torch.utils.data.Dataset):
    """Samples with read-only arrays."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return read_only.all_elements()


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_writability_of_arrays_matches_torch(workers, batch_size):
    def given(loader_class):
        options = dict(with_workers(workers)) if workers else {}
        loader = loader_class(
            ReadOnly(), batch_size, collate_fn=COLLATIONS["identity"], **options
        )
        return [read_only.writability(batch) for batch in loader]

    assert given(DataLoader) == given(torch.utils.data.DataLoader)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("workers", [0, 1])
def test_collated_read_only_arrays_match_torch(workers):
    options = with_workers(workers) if workers else ()
    assert_equal(Case("read only", options=options))


# torch's incomplete iterator raises when it is deleted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_prefetch_factor_0_fails_at_iteration():
    case = Case("ints", options=with_workers(2, prefetch_factor=0))
    text = "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
    # torch 2.6 gives no reason.
    expected = [
        ("error", "AssertionError", text) if event[-1] == "" else event
        for event in seen(torch.utils.data.DataLoader, case)
    ]
    assert seen(DataLoader, case) == expected
