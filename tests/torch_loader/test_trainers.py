"""Tests that trainers build our loader after install()."""

import abc
import importlib
import pickle
import sys
from typing import Protocol

import pytest
import torch
import torch.utils.data

from gristmill._torch import loader as loader_module
from gristmill.torch import DataLoader, StatefulDataLoader, install, uninstall

TorchLoader = torch.utils.data.DataLoader


@pytest.fixture(autouse=True)
def _undo():
    yield
    uninstall()
    # Accelerate stays imported, and other tests in this process must get no warning.
    loader_module._warned_of_accelerate = True


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """Return a function that imports a replacement for Accelerate's module."""
    package = tmp_path / "accelerate"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "data_loader.py").write_text(
        "from torch.utils.data import DataLoader\n"
        "def prepare(*args, **kwargs):\n"
        "    return DataLoader(*args, **kwargs)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "accelerate"]:
        monkeypatch.delitem(sys.modules, name)
    yield lambda: importlib.import_module("accelerate.data_loader")
    for name in ("accelerate", "accelerate.data_loader"):
        sys.modules.pop(name, None)


def test_module_imported_after_install_builds_ours(builder):
    install()
    module = builder()
    assert module.DataLoader is DataLoader
    assert module.__spec__.loader.get_source("accelerate.data_loader")
    assert [batch.item() for batch in module.prepare([1, 2])] == [1, 2]
    uninstall()
    assert module.DataLoader is TorchLoader


def test_module_imported_before_install_builds_ours(builder):
    module = builder()
    install()
    assert type(module.prepare([1])) is DataLoader
    uninstall()
    assert type(module.prepare([1])) is TorchLoader


def test_uninstall_before_import_leaves_module_unchanged(builder):
    install()
    uninstall()
    assert builder().DataLoader is TorchLoader


def test_options_reach_loaders_with_workers(builder):
    install(max_restarts=1)
    install(max_restarts=2, reorder_window=9)
    module = builder()
    loader = module.prepare([1], num_workers=1)
    assert (loader.max_restarts, loader.reorder_window) == (2, 9)
    assert module.prepare([1]).max_restarts == 0
    assert module.prepare([1], num_workers=1, max_restarts=5).max_restarts == 5


@pytest.fixture
def torchdata():
    return pytest.importorskip("torchdata.stateful_dataloader")


def test_torchdata_name_refers_to_ours(torchdata):
    theirs = torchdata.StatefulDataLoader
    install()
    from torchdata.stateful_dataloader import StatefulDataLoader as Imported

    assert Imported is StatefulDataLoader
    uninstall()
    assert torchdata.StatefulDataLoader is theirs


def test_torchdata_imported_later_refers_to_ours(torchdata, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torchdata")]:
        monkeypatch.delitem(sys.modules, name)
    install()
    later = importlib.import_module("torchdata.stateful_dataloader")
    assert later is not torchdata
    assert later.StatefulDataLoader is StatefulDataLoader
    uninstall()
    assert later.StatefulDataLoader.__module__.startswith("torchdata")


class _Saved(Protocol):
    def state_dict(self): ...


class _Base(_Saved, abc.ABC):
    """A base class of a trainer's loaders."""


@pytest.mark.parametrize("options", [{}, {"max_restarts": 2}])
def test_subclasses_of_torchdata_name_are_ours(torchdata, options):
    install(**options)

    class Ranked(torchdata.StatefulDataLoader, _Base):
        def __init__(self, rank, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.rank = rank

    loader = Ranked(3, range(4), 2, num_workers=1)
    assert isinstance(loader, StatefulDataLoader)
    assert loader.max_restarts == options.get("max_restarts", 0)
    assert Ranked(3, range(4), 2, None, None, None, 1).max_restarts == (
        loader.max_restarts
    )
    assert loader.state_dict()["_snapshot"]["_snapshot_step"] == 0
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert torchdata.StatefulDataLoader[int]


def test_loader_built_with_options_is_picklable(builder):
    install(max_restarts=2)
    built = builder().prepare([1, 2], num_workers=1)
    assert isinstance(built, DataLoader)
    copied = pickle.loads(pickle.dumps(built))
    assert type(copied) is DataLoader
    assert copied.max_restarts == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_restarts": -1}, ValueError),
        ({"reorder_window": 0}, ValueError),
        ({"memory_limit": "1"}, TypeError),
    ],
)
def test_invalid_install_options_are_refused(options, error):
    before = list(sys.meta_path)
    with pytest.raises(error, match=next(iter(options))):
        install(**options)
    assert sys.meta_path == before


@pytest.mark.parametrize("name", ["batch_size", "max_restart"])
def test_unknown_install_options_are_refused(name):
    with pytest.raises(TypeError, match=f"install.. got .*'{name}'"):
        install(**{name: 1})


class Rows(torch.utils.data.Dataset):
    """Rows of a tiny regression."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"x": torch.tensor([float(index)]), "labels": torch.tensor([1.0])}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        loss = torch.nn.functional.mse_loss(self.line(x / 12), labels)
        return {"loss": loss}


def test_accelerate_uses_our_loader():
    data_loader = pytest.importorskip("accelerate.data_loader")
    from accelerate import Accelerator

    install()
    prepared = Accelerator(cpu=True).prepare(DataLoader(Rows(), 5, shuffle=True))
    assert type(prepared.base_dataloader) is DataLoader
    assert isinstance(prepared, TorchLoader)
    skipped = data_loader.skip_first_batches(prepared, 1)
    assert [len(batch["x"]) for batch in prepared] == [5, 5, 2]
    assert [len(batch["x"]) for batch in skipped] == [5, 2]


def test_hugging_face_trainer_uses_our_loader(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    found = []
    get_iterator = DataLoader._get_iterator

    def counted(loader):
        for batch in get_iterator(loader):
            found.append(batch["x"].flatten().tolist())
            yield batch

    monkeypatch.setattr(DataLoader, "_get_iterator", counted)
    weights = []
    for replaced in (True, False):
        install() if replaced else uninstall()
        torch.manual_seed(0)
        arguments = transformers.TrainingArguments(
            str(tmp_path), use_cpu=True, per_device_train_batch_size=4,
            num_train_epochs=2, report_to=[], save_strategy="no", disable_tqdm=True,
            remove_unused_columns=False,
        )  # fmt: skip
        trainer = transformers.Trainer(Model(), arguments, train_dataset=Rows())
        trainer.train()
        weights.append([p.tolist() for p in trainer.model.parameters()])
    assert len(found) == 6
    assert sorted(number for batch in found[:3] for number in batch) == list(range(12))
    assert weights[0] == weights[1]
