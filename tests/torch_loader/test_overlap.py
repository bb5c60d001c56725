"""Tests of overlapping epochs, which request the next epoch's batches early."""

import warnings

import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from gristmill._torch.indices import draws
from gristmill.torch import DataLoader
from support.waiting import wait_for

pytestmark = pytest.mark.multiprocess

TorchLoader = torch.utils.data.DataLoader


class Drawing(torch.utils.data.Dataset):
    """Sample i is i, the worker's id and a random number."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index, get_worker_info().id, torch.rand(())


class Counting(Drawing):
    """Counts the reads of each sample."""

    def __init__(self, size):
        super().__init__(size)
        self.reads = torch.zeros(size, dtype=torch.int64).share_memory_()

    def __getitem__(self, index):
        self.reads[index] += 1
        return index


class FailsOnce(Counting):
    """The second read of sample 1 fails."""

    def __getitem__(self, index):
        if index == 1 and self.reads[1] == 1:
            self.reads[1] += 1
            raise ValueError("not today")
        return super().__getitem__(index)


def overlapping(dataset, **options):
    options = {
        "num_workers": 2,
        "multiprocessing_context": "fork",
        "persistent_workers": True,
        **options,
    }
    return DataLoader(dataset, overlap_epochs=True, **options)


def end(loader):
    loader._iterator._shutdown_workers()


@st.composite
def samplers(draw, size):
    """Return a strategy for functions of a dataset and generator that make samplers."""
    count = draw(st.integers(1, 2 * size))
    kind = draw(
        st.sampled_from(["sequential", "random", "replaced", "weighted", "ddp"])
    )
    if kind == "sequential":
        return lambda dataset, generator: SequentialSampler(dataset)
    if kind == "ddp":
        shuffle = draw(st.booleans())
        return lambda dataset, generator: DistributedSampler(dataset, 2, 1, shuffle)
    held = draw(st.booleans())
    if kind == "weighted":
        return lambda dataset, generator: WeightedRandomSampler(
            range(1, size + 1), count, True, generator if held else None
        )
    return lambda dataset, generator: RandomSampler(
        dataset, kind == "replaced", count, generator if held else None
    )


@st.composite
def configurations(draw):
    size = draw(st.integers(1, 12))
    return {
        "size": size,
        "sampler": draw(samplers(size)),
        "batch_size": draw(st.sampled_from([1, 2, 3, None])),
        "num_workers": draw(st.integers(1, 2)),
        "prefetch_factor": draw(st.integers(1, 4)),
        "drop_last": draw(st.booleans()),
        "stops_at": draw(st.sampled_from([None, 0, 1, 2])),
    }


def epochs_of(kind, configuration, **options):
    """Return 4 epochs, one maybe cut short, and the default generator after each."""
    torch.manual_seed(1)
    configuration = dict(configuration)
    dataset = Drawing(configuration.pop("size"))
    sampler = configuration.pop("sampler")(dataset, torch.Generator().manual_seed(7))
    stops_at = configuration.pop("stops_at")
    if configuration["batch_size"] is None:
        configuration["drop_last"] = False
    loader = kind(
        dataset,
        sampler=sampler,
        persistent_workers=True,
        multiprocessing_context="fork",
        **configuration,
        **options,
    )
    found = []
    for epoch in range(4):
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)
        batches = []
        for number, batch in enumerate(loader):
            batches.append([torch.as_tensor(part).tolist() for part in batch])
            if epoch == 1 and number == stops_at:
                break
        found.append((batches, torch.get_rng_state().tolist()))
    loader._iterator._shutdown_workers()
    return found


@settings(max_examples=12, deadline=None)
@given(configurations())
def test_batches_workers_and_draws_match_torch(configuration):
    if configuration["stops_at"] is None:
        expected = epochs_of(TorchLoader, configuration)
        found = epochs_of(DataLoader, configuration, overlap_epochs=True)
        assert found == expected
        return
    # Random numbers of samples differ, because workers drew some for unused batches.
    expected = epochs_of(TorchLoader, configuration)
    found = epochs_of(DataLoader, configuration, overlap_epochs=True)
    for (ours, our_state), (theirs, their_state) in zip(found, expected, strict=True):
        assert [batch[:2] for batch in ours] == [batch[:2] for batch in theirs]
        assert our_state == their_state


def test_next_epoch_is_read_before_it_begins():
    dataset = Counting(5)
    loader = overlapping(dataset)
    assert [batch.item() for batch in loader] == list(range(5))
    wait_for(lambda: dataset.reads.tolist() == [2, 2, 2, 2, 1])
    iterator = iter(loader)
    assert next(iterator).item() == 0
    wait_for(lambda: dataset.reads.tolist() == [2] * 5)
    assert [batch.item() for batch in iterator] == [1, 2, 3, 4]
    end(loader)


def test_without_option_no_batch_is_requested_early():
    loader = DataLoader(range(5), num_workers=2, persistent_workers=True)
    assert [batch.item() for batch in loader] == list(range(5))
    assert loader._iterator._pool.next() is None
    end(loader)


def test_epochs_shorter_than_the_window_overlap():
    loader = overlapping(range(2), num_workers=2, prefetch_factor=4)
    for _ in range(5):
        assert [batch.item() for batch in loader] == [0, 1]
    end(loader)


def test_draws_other_than_previewed_are_used_with_warning():
    dataset = Counting(6)
    sampler = DistributedSampler(dataset, 1, 0, shuffle=True)
    loader = overlapping(dataset, sampler=sampler)
    plain = TorchLoader(dataset, sampler=sampler)
    for epoch in (0, 1, 5, 6):
        sampler.set_epoch(epoch)
        if epoch == 5:
            with pytest.warns(UserWarning, match="the sampler drew other indices than"):
                batches = iter(loader)
        else:
            batches = iter(loader)
        assert list(batches) == list(plain)
    end(loader)


def test_default_generator_may_be_used_between_epochs():
    found = []
    for kind, options in ((TorchLoader, {}), (DataLoader, {"overlap_epochs": True})):
        torch.manual_seed(2)
        loader = kind(
            range(8), shuffle=True, num_workers=2, persistent_workers=True, **options
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                found.append((kind, [batch.item() for batch in loader]))
                torch.rand(3)
        end(loader)
    assert [x for _, x in found[:3]] == [x for _, x in found[3:]]


def test_error_of_next_epoch_is_raised_in_it():
    loader = overlapping(FailsOnce(4))
    assert [batch.item() for batch in loader] == [0, 1, 2, 3]
    batches = iter(loader)
    assert next(batches).item() == 0
    with pytest.raises(ValueError, match="not today"):
        next(batches)
    assert [batch.item() for batch in batches] == [2, 3]
    end(loader)


def test_long_epoch_is_not_previewed(monkeypatch):
    monkeypatch.setattr(draws, "MAX_PREVIEW", 4)
    loader = overlapping(range(5), shuffle=True)
    for _ in range(2):
        assert sorted(batch.item() for batch in loader) == list(range(5))
        assert loader._iterator._pool.next() is None
    end(loader)


def test_preview_error_is_raised_at_next_epoch():
    sampler = WeightedRandomSampler(range(1, 6), 5, False)
    loader = overlapping(range(5), sampler=sampler)
    batches = iter(loader)
    sampler.weights = -sampler.weights
    assert sorted(batch.item() for batch in batches) == list(range(5))
    with pytest.raises(RuntimeError, match="< 0"):
        iter(loader)
    sampler.weights = -sampler.weights
    assert sorted(batch.item() for batch in loader) == list(range(5))
    end(loader)


def test_replaced_sampler_draws_the_next_epoch():
    batch_sampler = BatchSampler(SequentialSampler(range(6)), 1, False)
    loader = overlapping(range(6), batch_sampler=batch_sampler)
    batches = iter(loader)
    batch_sampler.sampler = [2, 1, 0]
    assert [batch.item() for batch in batches] == list(range(6))
    assert [batch.item() for batch in loader] == [2, 1, 0]
    end(loader)


def test_loader_works_after_warning_raised_as_error():
    generator = torch.Generator()
    loader = overlapping(range(9), shuffle=True, generator=generator)
    assert sorted(batch.item() for batch in loader) == list(range(9))
    torch.rand((), generator=generator)
    with pytest.raises(UserWarning, match="overlap_epochs ends"):
        iter(loader)
    assert sorted(batch.item() for batch in loader) == list(range(9))
    end(loader)


class Mine(BatchSampler):
    """A user-defined class, whose draws cannot be previewed."""


def test_sampler_without_preview_gives_warning():
    mine = Mine(SequentialSampler(range(4)), 2, False)
    loader = overlapping(range(4), batch_sampler=mine)
    with pytest.warns(UserWarning, match="Mine over a SequentialSampler") as warned:
        batches = iter(loader)
    assert warned[0].filename == __file__
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
    end(loader)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "options", "text"),
    [
        (Stream(), {}, "overlap_epochs needs a map-style dataset"),
        (range(3), {"persistent_workers": False}, "needs persistent_workers=True"),
        (range(3), {"in_order": False}, "overlap_epochs needs in_order=True"),
    ],
)
def test_missing_requirements_are_refused(dataset, options, text):
    with pytest.raises(ValueError, match=text):
        overlapping(dataset, **options)
