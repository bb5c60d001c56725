"""Tests that resuming with in_order=False neither loses nor repeats a batch."""

import itertools
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, get_worker_info

from gristmill._torch.indices.draws import as_list
from gristmill._torch.resume.sampler_position import SamplerPosition
from gristmill._torch.resume.workers_position import PendingRequests
from gristmill.torch import StatefulDataLoader
from support.forked import of_workers
from support.waiting import wait_for

SIZE = 20
# Samplers of sixteen batches.
KINDS = {
    "sequential": lambda: BatchSampler(range(31), 2, False),
    "random": lambda: BatchSampler(
        RandomSampler(range(31), generator=torch.Generator().manual_seed(1)), 2, False
    ),
    "lists": lambda: [[number] for number in range(16)],
}


class Held(list):
    """Samples for which worker 0 waits until the file exists."""

    def __init__(self, path):
        super().__init__(range(SIZE))
        self.path = str(path)

    def __getitem__(self, index):
        worker = get_worker_info()
        if worker is not None and worker.id == 0:
            wait_for(lambda: os.path.exists(self.path))
        return index


class StatefulHeld(Held):
    """Counts reads in each worker's copy."""

    count = 0

    def __getitem__(self, index):
        self.count += 1
        return super().__getitem__(index)

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def loader_of(dataset, workers=2, in_order=False, **options):
    if workers:
        options.update(of_workers(workers))
        options["in_order"] = in_order
    options = {"generator": torch.Generator().manual_seed(3), **options}
    return StatefulDataLoader(dataset, batch_size=1, **options)


def taken(batches, count=99):
    return [batch.item() for batch in itertools.islice(batches, count)]


@pytest.mark.multiprocess
@pytest.mark.parametrize("made", [Held, StatefulHeld])
@pytest.mark.parametrize("count", [0, 1, 4, 16, SIZE - 2])
@pytest.mark.parametrize("interval", [None, 1, 5])
@pytest.mark.parametrize("shuffle", [False, True])
def test_no_batch_is_lost_or_repeated(made, count, interval, shuffle, tmp_path):
    dataset = made(tmp_path / "go")
    options = {"snapshot_every_n_steps": interval, "shuffle": shuffle}
    loader = loader_of(dataset, **options)
    found = taken(iter(loader), count)
    state = loader.state_dict()
    (tmp_path / "go").touch()
    loader = loader_of(dataset, **options)
    loader.load_state_dict(state)
    assert sorted(found + taken(loader)) == list(range(SIZE))


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_any_loader_continues_with_undelivered_batches(workers, tmp_path):
    dataset = Held(tmp_path / "go")
    loader = loader_of(dataset)
    found = taken(iter(loader), 5)
    state = loader.state_dict()
    (tmp_path / "go").touch()
    missing = [number for number in range(SIZE) if number not in found]
    for count in (0, 1, 2, 6):
        loader = loader_of(dataset, workers, in_order=True)
        loader.load_state_dict(state)
        assert taken(iter(loader), count) == missing[:count]
        missing, state = missing[count:], loader.state_dict()
    assert missing == list(range(SIZE - len(missing), SIZE))
    assert "_given_ahead" not in str(state)


@pytest.mark.multiprocess
def test_next_epoch_is_complete(tmp_path):
    dataset = Held(tmp_path / "go")
    loader = loader_of(dataset, persistent_workers=True)
    taken(iter(loader), 5)
    state = loader.state_dict()
    (tmp_path / "go").touch()
    loader = loader_of(dataset, persistent_workers=True)
    loader.load_state_dict(state)
    assert len(taken(loader)) == SIZE - 5
    assert sorted(taken(loader)) == list(range(SIZE))


def going_on(kind, state=None):
    sampler = KINDS[kind]()
    position = SamplerPosition(sampler, iter(sampler))
    if state is not None:
        position.restore(state)
    return position


@given(st.sampled_from(list(KINDS)), st.data())
def test_any_order_of_answers_is_resumed(kind, data):
    """Stop three runs while requests to workers are pending, and resume each."""
    left = as_lists(going_on(kind))
    state = None
    for _ in range(3):
        position = going_on(kind, state)
        state = position.state()
        pending = PendingRequests(2, state)
        under_way = [[], []]
        for worker in data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=12)):
            if worker < 2:
                for batch in as_lists(itertools.islice(position, 1)):
                    under_way[worker].append(batch)
                    pending.add(worker, position.state())
            elif under_way[worker - 2]:
                left.remove(under_way[worker - 2].pop(0))
                state = pending.remove_oldest(worker - 2)
        assert as_lists(going_on(kind, state)) == left


def as_lists(batches):
    return list(map(as_list, batches))
