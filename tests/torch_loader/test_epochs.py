"""Tests that random steps of Gristmill's datasets differ in each epoch of a loader."""

import logging
import os
import signal

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data import ConcatDataset, Subset

import gristmill as g
import gristmill.torch
from gristmill import images
from gristmill.torch import AsIterable, DataLoader, StatefulDataLoader

EPOCHS = 3
SIZE = 8

pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:This DataLoader will create:UserWarning",
    "ignore:Neither the dataset nor its iterator:UserWarning",
)


def noisy(x, rng):
    return x, rng.integers(1 << 30)


def chain(length=SIZE):
    return g.MapDataset.range(length).random_map(noisy, seed=3)


def crops():
    """Return a dataset whose random crops are computed by the batch."""
    pictures = np.arange(SIZE * 48, dtype=np.uint8).reshape(SIZE, 4, 4, 3)
    crop = images.RandomResizedCrop((2, 2))
    return g.MapDataset.source(pictures).random_map(crop, seed=3)


class Wrapped(torch.utils.data.Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


class Iterated(torch.utils.data.IterableDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        yield from self.dataset


def drawn(loader):
    """Return the random number of each element in one epoch."""
    found = {}
    for xs, numbers in loader:
        found.update(
            zip(np.ravel(xs).tolist(), np.ravel(numbers).tolist(), strict=True)
        )
    return found


EXPECTED = [
    drawn(loader)
    for loader in [DataLoader(chain(), 4, shuffle=True)]
    for _ in range(EPOCHS)
]

DATASETS = {
    "chain": lambda ds: ds,
    "subset": lambda ds: Subset(ds, [*range(SIZE)]),
    "concat": lambda ds: ConcatDataset([ds]),
    "subset of concat": lambda ds: Subset(ConcatDataset([ds]), range(SIZE)),
    "wrapped": Wrapped,
}
WORKERS = {
    "none": {},
    "one": {"num_workers": 1},
    "two": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "launcher": {
        "num_workers": 1,
        "persistent_workers": True,
        "multiprocessing_context": "launcher",
    },
    "spawn": {
        "num_workers": 1,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
    },
}
SOME_WORKERS = [
    pytest.param(name, marks=[pytest.mark.multiprocess] * (name != "none"))
    for name in ("none", "one", "persistent")
]
ALL_WORKERS = [
    *SOME_WORKERS,
    *(
        pytest.param(name, marks=pytest.mark.multiprocess)
        for name in ("two", "launcher", "spawn")
    ),
]


def test_epochs_differ_and_first_matches_indexing():
    assert len({str(epoch) for epoch in EXPECTED}) == EPOCHS
    assert EXPECTED[0] == dict(chain())


@pytest.mark.parametrize("name", ALL_WORKERS)
def test_draws_do_not_depend_on_workers(name):
    loader = DataLoader(chain(), 4, shuffle=True, **WORKERS[name])
    assert [drawn(loader) for _ in range(EPOCHS)] == EXPECTED


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize(
    "workers", [0, pytest.param(1, marks=pytest.mark.multiprocess)]
)
def test_draws_do_not_depend_on_wrapping_datasets(name, workers):
    loader = DataLoader(DATASETS[name](chain()), 3, num_workers=workers)
    assert [drawn(loader) for _ in range(2)] == EXPECTED[:2]


@pytest.mark.multiprocess
def test_draws_do_not_depend_on_overlapping_epochs():
    loader = DataLoader(
        chain(),
        2,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        overlap_epochs=True,
        generator=torch.Generator(),
    )
    assert [drawn(loader) for _ in range(EPOCHS)] == EXPECTED


@pytest.mark.multiprocess
def test_epoch_other_than_previewed_is_drawn_again():
    loader = DataLoader(
        chain(), 2, num_workers=1, persistent_workers=True, overlap_epochs=True
    )
    assert drawn(loader) == EXPECTED[0]
    loader.set_epoch(2)
    with pytest.warns(UserWarning, match="set_epoch chose another epoch"):
        assert drawn(loader) == EXPECTED[2]


@pytest.mark.multiprocess
def test_added_workers_draw_in_current_epoch():
    loader = DataLoader(chain(), 1, num_workers=1, persistent_workers=True)
    drawn(loader)
    batches = iter(loader)
    batches.set_workers(2)
    assert drawn(batches) == EXPECTED[1]


class Dying(Wrapped):
    """Kills its first worker in the second epoch."""

    def __init__(self, dataset, path):
        super().__init__(dataset)
        self.path = path

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if sample[1] == EXPECTED[1][5] and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return sample


@pytest.mark.multiprocess
def test_restarted_worker_draws_in_current_epoch(tmp_path):
    dataset = Dying(chain(), tmp_path / "died")
    how = {"num_workers": 1, "persistent_workers": True, "max_restarts": 1}
    loader = DataLoader(dataset, 2, **how)
    assert [drawn(loader) for _ in range(EPOCHS)] == EXPECTED
    assert dataset.path.exists()


@pytest.mark.parametrize("collate_fn", [None, list])
def test_unbatched_samples_differ_in_each_epoch(collate_fn):
    loader = DataLoader(chain(), None, collate_fn=collate_fn)
    assert [drawn(loader) for _ in range(EPOCHS)] == EXPECTED


def test_deferred_random_batches_differ_in_each_epoch():
    loader = DataLoader(crops(), SIZE)
    first, second = (next(iter(loader)) for _ in range(2))
    assert not torch.equal(first, second)
    plain = torch.utils.data.DataLoader(crops(), SIZE)
    assert torch.equal(first, next(iter(plain)))


def test_installed_torch_loader_differs_in_each_epoch():
    gristmill.torch.install(everywhere=True)
    try:
        loader = torch.utils.data.DataLoader(chain(), 4, shuffle=True)
        assert [drawn(loader) for _ in range(2)] == EXPECTED[:2]
        loader.set_epoch(0)
        assert drawn(loader) == EXPECTED[0]
    finally:
        gristmill.torch.uninstall()
    assert not hasattr(loader, "set_epoch")


# Choosing the epoch


def test_chosen_epoch_is_followed_by_next_one():
    loader = DataLoader(chain(), 4)
    loader.set_epoch(1)
    assert [drawn(loader) for _ in range(2)] == EXPECTED[1:3]


@pytest.mark.parametrize("batched", [False, True])
def test_epoch_of_sampler_sets_epoch_of_loader(batched):
    sampler = gristmill.torch.DistributedSampler(chain(), 1, 0)
    how = {"sampler": sampler, "batch_size": 4}
    if batched:
        batches = torch.utils.data.BatchSampler(sampler, 4, False)
        how = {"batch_sampler": batches}
    loader = DataLoader(chain(), **how)
    sampler.set_epoch(1)
    assert drawn(loader) == EXPECTED[1]
    sampler.set_epoch(2)
    assert drawn(loader) == EXPECTED[2]
    sampler.set_epoch(0)
    # Without another set_epoch, the loader counts epochs.
    assert [drawn(loader) for _ in range(EPOCHS)] == EXPECTED


def test_set_epoch_reaches_sampler_and_dataset():
    class Told(Wrapped):
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

    dataset = Told(chain())
    sampler = gristmill.torch.DistributedSampler(dataset, 1, 0)
    loader = DataLoader(dataset, 4, sampler=sampler)
    loader.set_epoch(np.int64(2))
    assert (dataset.epoch, sampler.epoch) == (2, 2)
    assert drawn(loader) == EXPECTED[2]


@pytest.mark.parametrize(
    ("epoch", "error", "text"),
    [(-1, ValueError, "at least 0, got -1"), (1.0, TypeError, "an int, got float")],
)
def test_wrong_epoch_is_refused(epoch, error, text):
    with pytest.raises(error, match=text):
        DataLoader(chain()).set_epoch(epoch)


def test_reports_do_not_count_as_epochs():
    loader = DataLoader(chain(), 4)
    loader.report(seconds=0.01)
    iterator = iter(loader)
    assert drawn(iterator) == EXPECTED[0]
    iterator.report(verify=True, seconds=0.01)
    assert drawn(loader) == EXPECTED[1]


def test_epoch_does_not_affect_other_chains():
    loader = DataLoader(chain(), 4)
    drawn(loader)
    batches = iter(loader)
    next(batches)
    assert dict(chain()) == {i: chain()[i][1] for i in range(SIZE)} == EXPECTED[0]


# States


@pytest.mark.parametrize("name", SOME_WORKERS)
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("given", [1, 4, None])
def test_state_resumes_in_its_epoch(name, epoch, given):
    how = WORKERS[name]
    loader = StatefulDataLoader(chain(), 2, shuffle=True, **how)
    for _ in range(epoch):
        list(loader)
    batches = iter(loader)
    for _ in range(given or SIZE // 2 + 1):
        next(batches, None)
    state = loader.state_dict()
    torchs = torch.get_rng_state()
    expected = [drawn(batches), drawn(loader)]
    for other in (how.get("num_workers", 0), 0):
        torch.set_rng_state(torchs)
        resumed = StatefulDataLoader(chain(), 2, shuffle=True, num_workers=other)
        resumed.load_state_dict(state)
        found = [drawn(resumed), drawn(resumed)]
        # The state of an epoch that has ended leads to the next one.
        assert (found[:1] if given is None else found) == expected[given is None :]


def test_state_of_first_epoch_has_no_epoch():
    loader = StatefulDataLoader(chain(), 4)
    next(iter(loader))
    assert "_epoch" not in loader.state_dict()
    next(iter(loader))
    assert loader.state_dict()["_epoch"] == 1


def test_state_without_epoch_resumes_first_epoch():
    loader = StatefulDataLoader(chain(), 4)
    list(loader)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del state["_epoch"]
    loader.load_state_dict(state)
    assert drawn(loader).items() <= EXPECTED[0].items()
    assert drawn(loader) == EXPECTED[1]


def test_epoch_chosen_after_finished_state_is_next():
    loader = StatefulDataLoader(chain(), 4)
    list(loader)
    state = loader.state_dict()
    loader.load_state_dict(state)
    loader.set_epoch(2)
    assert drawn(loader) == EXPECTED[2]


# Iterable datasets


@pytest.mark.parametrize("name", SOME_WORKERS)
def test_iterable_chains_differ_in_each_epoch(name):
    # Each worker gives all elements.
    loader = DataLoader(Iterated(chain()), 3, **WORKERS[name])
    assert [drawn(loader) for _ in range(EPOCHS)] == EXPECTED


ITERATED = {
    "in order": lambda ds: ds.to_iter_dataset().random_map(
        lambda x, rng: noisy(x[0], rng), seed=1
    ),
    "threads": lambda ds: g.experimental.multithread_prefetch(
        ds.to_iter_dataset(), 2, 1
    ),
    "read by threads": lambda ds: ds.to_iter_dataset(g.ReadOptions(2, 4)),
    "ahead": lambda ds: g.experimental.ThreadPrefetchIterDataset(
        ds.to_iter_dataset(), prefetch_buffer_size=2
    ),
    "interleaved": lambda ds: g.experimental.InterleaveIterDataset(
        [ds], cycle_length=1
    ),
    "streams": lambda ds: ds.to_iter_dataset().mp_prefetch(
        g.MultiprocessingOptions(num_workers=0), streams=2
    ),
}


@pytest.mark.parametrize("name", ITERATED)
def test_all_nodes_of_iterable_chain_follow_epoch(name):
    loader = DataLoader(AsIterable(ITERATED[name](chain())), None)
    epochs = [drawn(loader) for _ in range(EPOCHS)]
    assert len({str(epoch) for epoch in epochs}) == EPOCHS
    if name != "in order":
        assert epochs == EXPECTED


@pytest.mark.multiprocess
def test_workers_of_a_chain_follow_epoch():
    ds = chain().to_iter_dataset().mp_prefetch(g.MultiprocessingOptions(num_workers=1))
    loader = DataLoader(AsIterable(ds), None)
    assert [drawn(loader) for _ in range(2)] == EXPECTED[:2]


def test_iterable_resumes_in_its_epoch():
    loader = StatefulDataLoader(AsIterable(chain()), None)
    list(loader)
    batches = iter(loader)
    next(batches)
    state, expected = loader.state_dict(), drawn(batches)
    loader = StatefulDataLoader(AsIterable(chain()), None)
    loader.load_state_dict(state)
    assert drawn(loader) == expected
    assert drawn(loader) == EXPECTED[2]


SHUFFLED = {
    "chain": lambda: chain().shuffle(seed=1),
    "in order": lambda: chain().shuffle(seed=1).to_iter_dataset(),
    "loader": lambda: g.load(range(SIZE), shuffle=True, seed=1, num_epochs=1),
}


def order(loader):
    return [int(x[0] if isinstance(x, (list, tuple)) else x) for x in loader]


@pytest.mark.parametrize("name", SHUFFLED)
def test_chosen_epoch_has_its_own_order(name):
    loader = DataLoader(AsIterable(SHUFFLED[name]()), None)
    epochs = []
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        epochs.append(order(loader))
    repeated = g.load(range(SIZE), shuffle=True, seed=1, num_epochs=EPOCHS)
    if name != "loader":
        repeated = chain().shuffle(seed=1).repeat(EPOCHS)
    assert [x for epoch in epochs for x in epoch] == order(repeated)


def warned(caplog, text):
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return sum(text in message for message in found)


@pytest.mark.parametrize("name", SHUFFLED)
def test_repeated_order_is_logged_once(name, caplog):
    loader = DataLoader(AsIterable(SHUFFLED[name]()), None)
    assert order(loader) and warned(caplog, "loader.set_epoch(epoch)") == 0
    assert order(loader) and warned(caplog, "loader.set_epoch(epoch)") == 1
    assert order(loader) and warned(caplog, "loader.set_epoch(epoch)") == 0


def test_draws_in_one_order_are_not_logged(caplog):
    loader = DataLoader(AsIterable(chain()), None)
    for _ in range(EPOCHS):
        list(loader)
    assert not caplog.records


@pytest.fixture
def log_file(tmp_path):
    """Return the file to which this process and its forks log."""
    handler = logging.FileHandler(tmp_path / "log")
    logging.getLogger("gristmill").addHandler(handler)
    yield tmp_path / "log"
    logging.getLogger("gristmill").removeHandler(handler)
    handler.close()


@pytest.mark.multiprocess
@pytest.mark.parametrize("persistent", [False, True])
def test_one_worker_logs_a_repeated_order(persistent, log_file):
    dataset = Iterated(chain().shuffle(seed=1))
    loader = DataLoader(dataset, 4, num_workers=2, persistent_workers=persistent)
    for _ in range(EPOCHS):
        list(loader)
    assert log_file.read_text().count("in the same order as before") == 1


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda ds: DataLoader(ds.shuffle(seed=1), 4), 1),
        (lambda ds: DataLoader(ds.shuffle(seed=1).map(list), None), 1),
        (lambda ds: DataLoader(ds.shuffle(seed=1), 4, shuffle=True), 0),
        (lambda ds: DataLoader(ds.shuffle(seed=1)[2:], 4), 0),
        (lambda ds: DataLoader(ds, 4), 0),
    ],
)
def test_shuffled_chain_with_sequential_sampler_is_logged(make, count, caplog):
    loader = make(chain())
    for _ in range(EPOCHS):
        list(loader)
    assert warned(caplog, "Pass shuffle=True") == count
