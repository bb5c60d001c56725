"""Ranks that share torch workers get the batches of workers of their own."""

import errno
import os
import pickle
import random

import numpy as np
import pytest

import gristmill.host
from gristmill._host import messages
from support.ranks import new_pool, plain, share_all, take_in_turn

torch = pytest.importorskip("torch")
from torch.utils import data  # noqa: E402

import gristmill.torch  # noqa: E402

RECORDS = 22


class Noisy(data.Dataset):
    """Draws from all generators, has one of its own, and counts its calls."""

    def __init__(self):
        self.generator = np.random.default_rng(3)
        self.calls = 0

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        self.calls += 1
        worker = data.get_worker_info()
        return {
            "rows": torch.full((9000,), float(index)),
            "draws": torch.rand(2),
            "python": random.random(),
            "numpy": np.random.rand(),  # noqa: NPY002
            "own": self.generator.random(),
            "calls": self.calls,
            "worker": (worker.id, worker.num_workers, worker.seed),
        }


class Numbers(data.IterableDataset):
    """Each worker yields its share."""

    def __iter__(self):
        worker = data.get_worker_info()
        for number in range(worker.id, RECORDS, worker.num_workers):
            yield number, random.random()


def make(rank=None, kind=gristmill.torch.DataLoader, dataset=Noisy, **options):
    dataset = dataset()
    # A process in which JAX is initialized would warn of another default.
    context = "launcher" if options.get("num_workers", 2) else None
    options = {
        "batch_size": 4,
        "num_workers": 2,
        "multiprocessing_context": context,
        **options,
    }
    options["generator"] = torch.Generator().manual_seed(5)
    if rank is not None:
        options["sampler"] = data.DistributedSampler(dataset, 2, rank, seed=5)
    elif isinstance(dataset, Noisy):
        options["shuffle"] = True
    return kind(dataset, **options)


def make_own(rank=None, **options):
    """Return a loader that starts its workers faster."""
    return make(rank, multiprocessing_context="fork", **options)


@pytest.mark.parametrize(
    ("mode", "persistent"),
    [("deal", False), ("deal", True), ("broadcast", False), ("broadcast", True)],
)
def test_epochs_of_ranks_equal_those_of_own_loaders(mode, persistent):
    name = new_pool()
    loaders = [make(persistent_workers=persistent) for _ in range(2)]
    own = [
        make_own(rank if mode == "deal" else None, persistent_workers=persistent)
        for rank in range(2)
    ]
    for epoch in range(2):
        shared = [
            gristmill.host.share(loader, name=name, rank=rank, ranks=2, mode=mode)
            for rank, loader in enumerate(loaders)
        ]
        for loader in own:
            loader.set_epoch(epoch)
        assert take_in_turn(shared) == [[*map(plain, loader)] for loader in own]
    for iterator in shared:
        iterator._shutdown_workers()


def test_iterable_dataset_is_broadcast_with_shares_of_workers():
    shared = share_all(lambda: make(dataset=Numbers), 2, mode="broadcast")
    expected = [*map(plain, make_own(dataset=Numbers))]
    assert take_in_turn(shared) == [expected, expected]


@pytest.mark.parametrize("mode", ["deal", "broadcast"])
def test_state_of_shared_loader_continues_alone_and_back(mode):
    stateful = gristmill.torch.StatefulDataLoader
    rank = 0 if mode == "deal" else None
    name = new_pool()

    def share(loader):
        return gristmill.host.share(loader, name=name, rank=0, ranks=2, mode=mode)

    # Another rank would have to take its outputs, too.
    loader, alone = make(kind=stateful), make_own(rank, kind=stateful)
    shared, own = share(loader), iter(alone)
    for _ in range(1):
        assert plain(next(shared)) == plain(next(own))
    states = loader.state_dict(), alone.state_dict()
    shared._shutdown_workers()
    own._shutdown_workers()
    again, alone_again = make(kind=stateful), make_own(rank, kind=stateful)
    again.load_state_dict(states[1])
    alone_again.load_state_dict(states[0])
    expected = [*map(plain, alone_again)]
    assert len(expected) == (2 if mode == "deal" else 5)
    assert take_in_turn([share(again)]) == [expected]


@pytest.mark.parametrize(
    ("loader", "error", "text"),
    [
        (lambda: make(num_workers=0), ValueError, "this one has num_workers=0"),
        (lambda: make(num_workers="auto"), ValueError, "has num_workers='auto'"),
        (lambda: make(1), ValueError, "must have rank=0 and num_replicas=2, like"),
        (lambda: make(dataset=Numbers), ValueError, "cannot deal an IterableDataset"),
        (
            lambda: make(multiprocessing_context="spawn"),
            ValueError,
            "multiprocessing_context must be None",
        ),
        (lambda: data.DataLoader([1], num_workers=1), TypeError, "share needs a grist"),
        (
            lambda: gristmill.torch.DataLoader([1, 2], sampler=[1, 0], num_workers=1),
            ValueError,
            "this one has a BatchSampler over a list",
        ),
    ],
)
def test_loader_that_cannot_be_shared_raises_error(loader, error, text):
    with pytest.raises(error, match=text):
        gristmill.host.share(loader(), name="unused", rank=0, ranks=2)


def test_request_that_cannot_be_sent_raises_error(monkeypatch):
    send_packet = messages.send_packet

    def send(peer, packet, *fds):
        if packet[:1] != pickle.PROTO:  # It is a request.
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        send_packet(peer, packet, *fds)

    monkeypatch.setattr(messages, "send_packet", send)
    (shared,) = share_all(make, 1)
    with pytest.raises(Exception, match="Too many open files"):
        next(shared)


def test_ranks_with_other_seeds_cannot_read_the_same():
    name = new_pool()

    def share(rank, seed):
        generator = torch.Generator().manual_seed(seed)
        loader = gristmill.torch.DataLoader([1, 2], num_workers=1, generator=generator)
        return gristmill.host.share(
            loader, name=name, rank=rank, ranks=2, mode="broadcast"
        )

    first = share(0, seed=1)
    with pytest.raises(ValueError, match=r"of rank 0 .* and of rank 1 .* in seeds"):
        share(1, seed=2)
    second = share(1, seed=1)
    first._shutdown_workers()
    second._shutdown_workers()


def test_number_of_shared_workers_cannot_change():
    (shared,) = share_all(make, 1)
    with pytest.raises(ValueError, match=r"number of workers cannot change: they are"):
        shared.set_workers(3)
    shared._shutdown_workers()


class Queued(Noisy):
    def __init__(self):
        super().__init__()
        self.queue = torch.multiprocessing.get_context("spawn").SimpleQueue()


def test_only_datasets_with_shared_objects_are_refused():
    # Starts the resource tracker of this process.
    kept = Queued()
    (shared,) = share_all(make, 1)
    assert len(list(shared)) == 6
    shared._shutdown_workers()
    with pytest.raises(RuntimeError, match="The dataset has a lock, a queue, or"):
        next(share_all(lambda: make(dataset=lambda: kept), 1)[0])
