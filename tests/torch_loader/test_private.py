"""Tests that torch's private parts are checked, and not used if they have changed."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
import torch.utils.data
from torch.utils.data import dataloader

from faults.scripts import command, environment
from gristmill._torch import private
from gristmill.torch import DataLoader, StatefulDataLoader, install, uninstall

FOLDER = Path(private.__file__).parent
COLLATE = torch.utils.data._utils.collate
WORKER = torch.utils.data._utils.worker
SAMPLES = [torch.tensor([float(n)]) for n in range(7)]


def test_installed_torch_is_known():
    assert private.DIFFERENCE is None


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (dataloader, "_BaseDataLoaderIter"),
        (dataloader, "_sharding_worker_init_fn"),
        (dataloader._DatasetKind, "Map"),
        (dataloader._BaseDataLoaderIter, "_next_index"),
        (COLLATE, "default_collate_fn_map"),
        (WORKER, "_worker_info"),
        (torch, "_neg_view"),
        (torch._utils, "ExceptionWrapper"),
        (torch.multiprocessing, "_set_thread_name"),
        (torch.autograd.profiler, "_is_profiler_enabled"),
    ],
)
def test_missing_part_is_found(monkeypatch, owner, name):
    monkeypatch.delattr(owner, name)
    found = private.find_difference()
    assert found is not None
    assert re.fullmatch(rf"torch\..*\.?{name}(\.\w+)? does not exist", found)


@pytest.mark.parametrize(
    ("owner", "name", "changed"),
    [
        (dataloader._BaseDataLoaderIter, "_reset", lambda self: None),
        (WORKER, "_generate_state", lambda base_seed: None),
        (WORKER, "WorkerInfo", lambda id, num_workers, seed: None),
        (COLLATE, "collate_int_fn", lambda batch: None),
        (torch._utils, "ExceptionWrapper", lambda exc_info, origin: None),
    ],
)
def test_part_with_other_arguments_is_found(monkeypatch, owner, name, changed):
    monkeypatch.setattr(owner, name, changed)
    found = private.find_difference()
    assert found is not None
    assert name in found


def test_failing_iterator_is_found(monkeypatch):
    def failing(iterator, loader):
        raise NotImplementedError("threads")

    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__init__", failing)
    assert private.find_difference() == (
        "torch's iterator fails: NotImplementedError('threads')"
    )


@pytest.mark.parametrize("name", private._ITERATOR_ATTRIBUTES)
def test_missing_iterator_attribute_is_found(monkeypatch, name):
    kept = dataloader._SingleProcessDataLoaderIter.__init__

    def without(iterator, loader):
        kept(iterator, loader)
        vars(iterator)[f"_new{name}"] = vars(iterator).pop(name)

    cls = dataloader._SingleProcessDataLoaderIter
    monkeypatch.setattr(cls, "__init__", without)
    found = private.find_difference()
    assert found is not None
    assert name in found


def test_check_draws_no_random_numbers_and_uses_no_device():
    torch.manual_seed(3)
    expected = torch.default_generator.get_state()
    with torch.device("meta"):
        assert private.find_difference() is None
    assert torch.equal(torch.default_generator.get_state(), expected)


def test_all_used_iterator_attributes_are_checked():
    iterator = iter(torch.utils.data.DataLoader([0]))
    used = set()
    for path in FOLDER.rglob("*.py"):
        if path.name != "private.py":
            used |= set(re.findall(r"\bself\.(_\w+)", path.read_text()))
    of_torch = used & set(vars(iterator))
    assert of_torch
    assert of_torch <= set(private._ITERATOR_ATTRIBUTES)


@pytest.fixture
def unknown(monkeypatch):
    """Pretend that this torch lacks a private part."""
    monkeypatch.setattr(private, "DIFFERENCE", "torch._thing does not exist")
    private.warn_if_unsupported.cache_clear()


@pytest.mark.multiprocess
@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize("workers", [0, 2])
def test_unknown_torch_warns_once_and_gives_torch_batches(workers):
    options = {"batch_size": 3, "num_workers": workers}
    with pytest.warns(UserWarning, match="does not exist") as warned:
        loader = DataLoader(SAMPLES, **options)
        DataLoader(SAMPLES, **options)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert str(warned[0].message) == (
        f"Gristmill supports torch 2.6 to 2.15, but in torch {torch.__version__} "
        "torch._thing does not exist. Loaders use torch's own iterators: max_restarts,"
        " reorder_window, memory_limit and overlap_epochs have no effect, and random"
        " steps of Gristmill's datasets draw the same numbers in each epoch. Install a"
        " supported version of torch."
    )
    iterator = iter(loader)
    theirs = iter(torch.utils.data.DataLoader(SAMPLES, **options))
    assert type(iterator) is type(theirs)
    assert [batch.tolist() for batch in iterator] == [
        [[0.0], [1.0], [2.0]], [[3.0], [4.0], [5.0]], [[6.0]]
    ]  # fmt: skip


@pytest.mark.usefixtures("unknown")
def test_unknown_torch_refuses_stateful_loader():
    with pytest.raises(RuntimeError, match=r"_thing does not exist\..*torchdata"):
        StatefulDataLoader(SAMPLES)


@pytest.mark.usefixtures("unknown")
def test_install_changes_nothing_in_unknown_torch():
    kept = torch.utils.data.DataLoader._get_iterator
    with pytest.warns(UserWarning, match="does not exist"):
        install(everywhere=True)
    assert torch.utils.data.DataLoader._get_iterator is kept
    uninstall()


@pytest.mark.multiprocess
def test_torch_without_private_parts_works():
    assert _errors("lacking_parts") == ""


@pytest.mark.multiprocess
def test_changed_torch_can_be_imported():
    datapipes = "utils.data.IterDataPipe", "utils.data.MapDataPipe"
    type_variables = range(4)
    # Each import takes 0.1 s.
    parts = [",".join([*private._USED_PARTS][first::12]) for first in range(12)]
    changes = *parts, "all parts", *datapipes, *type_variables
    assert _errors("changed_torch", *changes) == ""


def _errors(program, *arguments):
    """Run a program of torch_loader/private, and return its standard error."""
    done = subprocess.run(
        command(f"torch_loader/private/{program}", *arguments),
        env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr
