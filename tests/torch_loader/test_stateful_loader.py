"""Tests of loading states with other workers, in other processes, and after errors."""

import itertools
import json
import subprocess
import sys
import warnings
from contextlib import nullcontext

import pytest
import torch
import torchdata.stateful_dataloader
from torch.utils.data import DistributedSampler

from faults.scripts import PROGRAMS
from gristmill.torch import StatefulDataLoader
from support.forked import of_workers
from torch_loader.stateful_zoo import (
    Both,
    Counting,
    Failing,
    Items,
    Numbers,
    OwnIterator,
    StatefulNumbers,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:This DataLoader will create:UserWarning",
)


def loader_of(dataset, workers=0, **options):
    if workers:
        options.update(of_workers(workers))
    options.setdefault("batch_size", 2)
    return StatefulDataLoader(dataset, **options)


def taken(batches, count=99):
    return [torch.as_tensor(b).tolist() for b in itertools.islice(batches, count)]


def state_after(count, loader):
    batches = iter(loader)
    taken(batches, count)
    return loader.state_dict(), batches


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_map_style_state_resumes_with_any_workers(before, after):
    torch.manual_seed(2)
    options = {"shuffle": True, "snapshot_every_n_steps": 3}
    state, batches = state_after(4, loader_of(range(17), before, **options))
    other = loader_of(range(17), after, **options)
    other.load_state_dict(state)
    assert taken(other) == taken(batches)


def test_state_can_be_saved_again_with_other_workers():
    state, batches = state_after(4, loader_of(range(17), 3, snapshot_every_n_steps=3))
    middle = loader_of(range(17), 2)
    middle.load_state_dict(state)
    state, _ = state_after(2, middle)
    last = loader_of(range(17))
    last.load_state_dict(state)
    assert taken(last) == taken(batches)[2:]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 0), (0, 2)])
def test_stateful_dataset_needs_same_number_of_workers(before, after):
    state, _ = state_after(2, loader_of(Counting(), before, collate_fn=torch.tensor))
    other = loader_of(Counting(), after)
    other.load_state_dict(state)
    text = rf"num_workers must be {before}, .* got {after}:"
    with pytest.raises(AssertionError, match=text):
        iter(other)


def test_iterable_dataset_needs_same_number_of_workers():
    alone, _ = state_after(1, loader_of(StatefulNumbers()))
    pair, _ = state_after(1, loader_of(StatefulNumbers(), 2))
    for state, workers, text in (
        (alone, 2, "doesn't contain key '_snapshot' expected for multiprocess"),
        (pair, 0, "doesn't contain key '_num_yielded' expected for single process"),
        (pair, 1, "num_workers must be 2, .* got 1:"),
    ):
        other = loader_of(StatefulNumbers(), workers)
        other.load_state_dict(state)
        with pytest.raises(AssertionError, match=text):
            iter(other)


@pytest.mark.parametrize("workers", [0, 2])
def test_state_resumes_after_json_round_trip(workers):
    dataset = OwnIterator if workers else Both
    state, batches = state_after(3, loader_of(dataset(), workers))
    other = loader_of(dataset(), workers)
    other.load_state_dict(json.loads(json.dumps(state)))
    assert taken(other) == taken(batches)


def test_generator_state_may_be_a_list():
    state, batches = state_after(3, loader_of(range(9), shuffle=True))
    text = json.dumps(state, default=torch.Tensor.tolist)
    other = loader_of(range(9), shuffle=True)
    other.load_state_dict(json.loads(text))
    assert taken(other) == taken(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_state_resumes_in_another_process(workers, tmp_path):
    torch.manual_seed(3)
    state, batches = state_after(2, loader_of(range(11), workers, shuffle=True))
    torch.save(state, tmp_path / "state.pt")
    program = PROGRAMS / "torch_loader" / "stateful_loader" / "resume.py"
    command = [sys.executable, program, tmp_path / "state.pt"]
    told = subprocess.run([*command, str(workers)], stdout=subprocess.PIPE, check=True)
    assert told.stdout.decode().strip() == str(taken(batches))


@pytest.mark.parametrize("workers", [0, 1])
def test_raised_error_is_not_raised_again_after_resume(workers):
    def all_of(batches):
        for _ in range(20):
            try:
                yield next(batches)
            except StopIteration:
                return
            except ValueError:
                yield "error"

    loader = loader_of(Failing(), workers, batch_size=None)
    whole = list(all_of(iter(loader)))
    assert whole.count("error") == 3
    for count in range(1, len(whole)):
        with pytest.warns(UserWarning, match="batches are computed again"):
            loader = loader_of(Failing(), workers, batch_size=None)
            batches = all_of(iter(loader))
            list(itertools.islice(batches, count))
            other = loader_of(Failing(), workers, batch_size=None)
            other.load_state_dict(loader.state_dict())
            assert list(all_of(iter(other))) == list(batches) == whole[count:]


class Watched(Items):
    """Records which samples are read."""

    def __init__(self):
        self.read = []

    def __getitem__(self, index):
        self.read.append(index)
        return index


@pytest.mark.parametrize("sampler", [None, DistributedSampler(Items(), 2, 0)])
def test_resume_reads_no_sample_before_position(sampler):
    state, _ = state_after(2, loader_of(Watched(), sampler=sampler))
    dataset = Watched()
    other = loader_of(dataset, sampler=sampler)
    other.load_state_dict(state)
    rest = taken(other)
    assert dataset.read == [index for batch in rest for index in batch]


def test_resume_at_far_position_is_fast():
    class Far:
        def __len__(self):
            return 10**15

        def __getitem__(self, index):
            return index

    state, _ = state_after(1, loader_of(Far()))
    state["_sampler_iter_yielded"] = state["_num_yielded"] = 10**14
    state["_index_sampler_state"] = {"samples_yielded": 2 * 10**14}
    other = loader_of(Far())
    other.load_state_dict(state)
    assert next(iter(other)).tolist() == [2 * 10**14, 2 * 10**14 + 1]


def test_corrections_by_accelerate_are_applied():
    state, _ = state_after(4, loader_of(range(20)))
    state["_sampler_iter_yielded"] -= 1
    state["_num_yielded"] -= 1
    state["_index_sampler_state"]["samples_yielded"] -= 2
    other = loader_of(range(20))
    other.load_state_dict(state)
    assert next(iter(other)).tolist() == [6, 7]
    state["_iterator_finished"] = True
    other.load_state_dict(state)
    assert next(iter(other)).tolist() == [0, 1]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_accelerate_resumes_in_mid_epoch(workers, monkeypatch):
    import accelerate

    monkeypatch.setattr(
        torchdata.stateful_dataloader, "StatefulDataLoader", StatefulDataLoader
    )
    config = accelerate.utils.DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=config)

    def prepared():
        options = {"batch_size": 2, "num_workers": workers}
        return accelerator.prepare(torch.utils.data.DataLoader(range(9), **options))

    loader = prepared()
    assert type(loader.base_dataloader) is StatefulDataLoader
    batches = iter(loader)
    # Accelerate reads one batch ahead.
    assert taken(batches, 2) == [[0, 1], [2, 3]]
    other = prepared()
    other.load_state_dict(loader.state_dict())
    assert taken(other) == taken(batches) == [[4, 5], [6, 7], [8]]
    other = prepared()
    other.load_state_dict(loader.state_dict())
    assert taken(other) == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


@pytest.mark.parametrize("workers", [0, 2])
def test_changes_of_returned_state_have_no_effect(workers):
    loader = loader_of(range(9), workers)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    main = state["_snapshot"]["_main_snapshot"] if workers else state
    main["_index_sampler_state"]["samples_yielded"] = 70
    state["_iterator_finished"] = True
    state = loader.state_dict()
    main = state["_snapshot"]["_main_snapshot"] if workers else state
    assert main["_index_sampler_state"] == {"samples_yielded": 2}
    assert not state["_iterator_finished"]


@pytest.mark.parametrize("workers", [0, 2])
def test_state_dict_before_iter_makes_next_iterator(workers):
    torch.manual_seed(6)
    loader = loader_of(range(9), workers, shuffle=True)
    state = loader.state_dict()
    made = loader._iterator
    assert iter(loader) is made
    other = loader_of(range(9), workers, shuffle=True)
    other.load_state_dict(state)
    assert taken(other) == taken(made)
    assert iter(loader) is not made


@pytest.mark.parametrize("workers", [0, 2])
def test_state_is_loaded_once_and_cleared_by_empty_one(workers):
    loader = loader_of(range(6), workers)
    state, batches = state_after(2, loader)
    loader.load_state_dict(state)
    assert taken(batches) == [[4, 5]]
    assert taken(loader) == [[4, 5]]
    assert taken(loader) == [[0, 1], [2, 3], [4, 5]]
    loader.load_state_dict(state)
    loader.load_state_dict({})
    assert taken(loader) == [[0, 1], [2, 3], [4, 5]]


def test_persistent_workers_restart_and_resume():
    loader = loader_of(StatefulNumbers(), 2, persistent_workers=True)
    whole = taken(loader)
    batches = iter(loader)
    assert batches is iter(loader)
    assert taken(batches, 3) == whole[:3]
    state = loader.state_dict()
    assert iter(loader) is batches
    assert taken(batches) == whole
    loader.load_state_dict(state)
    assert iter(loader) is not batches
    assert taken(loader._iterator) == whole[3:]
    assert taken(loader) == whole


@pytest.mark.parametrize("interval", [0, None, 2, 100])
@pytest.mark.parametrize("dataset", [Items, Numbers, Counting, Both])
def test_rare_snapshots_resume_at_same_position(dataset, interval):
    options = {"snapshot_every_n_steps": interval, "collate_fn": torch.tensor}
    for count in (1, 4):
        state, batches = state_after(count, loader_of(dataset(), 2, **options))
        assert state["_steps_since_snapshot"] == count % (interval or 100)
        other = loader_of(dataset(), 2, **options)
        other.load_state_dict(state)
        text = f"first {count} batches are computed again"
        replays = dataset is Numbers
        with pytest.warns(UserWarning, match=text) if replays else nullcontext():
            assert taken(other) == taken(batches)


class Shrunk(Numbers):
    """Ends before the saved position."""

    def __iter__(self):
        return itertools.islice(super().__iter__(), 1)


@pytest.mark.filterwarnings("ignore:Neither the dataset nor:UserWarning")
def test_shortened_dataset_is_refused():
    state, _ = state_after(3, loader_of(Numbers(), 2))
    other = loader_of(Shrunk(), 2)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="last_yielded_worker_id does not match"):
        iter(other)


def refuse(worker):
    raise LookupError(f"worker {worker} refuses")


def test_worker_init_error_is_raised_by_iter():
    for loader_class in (
        StatefulDataLoader,
        torchdata.stateful_dataloader.StatefulDataLoader,
    ):
        loader = loader_class(range(9), num_workers=1, worker_init_fn=refuse)
        with pytest.raises(
            LookupError, match=r"(?s)Caught LookupError.*worker 0 refuses"
        ):
            iter(loader)


@pytest.mark.parametrize(
    ("dataset", "warned"), [(Numbers(), 1), (StatefulNumbers(), 0), (range(9), 0)]
)
def test_only_stateless_iterable_dataset_gives_warning(dataset, warned):
    loader = loader_of(dataset, 2, in_order=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        taken(iter(loader), 1)
        loader.state_dict()
        taken(loader)
        loader.state_dict()
    # Python from 3.12 on warns about forks, and so does JAX if other tests used it.
    texts = [str(found.message) for found in told]
    ours = ["in_order=False" in text for text in texts if "fork" not in text]
    assert ours == [True] * warned


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        (-1, ValueError, "snapshot_every_n_steps must be at least 0, got -1"),
        (1.5, TypeError, "snapshot_every_n_steps"),
    ],
)
def test_snapshot_interval_is_checked(steps, error, text):
    with pytest.raises(error, match=text):
        StatefulDataLoader([1], snapshot_every_n_steps=steps)


def test_restarted_worker_resumes_from_loaded_state():
    loader = loader_of(StatefulNumbers(), 1, batch_size=None)
    state, batches = state_after(3, loader)
    expected = taken(batches)
    other = loader_of(StatefulNumbers(), 1, batch_size=None, max_restarts=2)
    other.load_state_dict(state)
    batches = iter(other)
    found = [next(batches)]
    batches._workers[0].kill()
    batches._workers[0].join(30)
    assert found + taken(batches) == expected
