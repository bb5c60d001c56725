"""Lightning trains with our loader as it does with torch's."""

import itertools

import lightning
import pytest
import torch
import torch.utils.data
from lightning.fabric.utilities.data import _replace_dunder_methods, _set_sampler_epoch
from lightning.pytorch.utilities.data import _get_dataloader_init_args_and_kwargs
from torch.utils.data import DistributedSampler, SequentialSampler

from gristmill.torch import DataLoader
from trainers.small import SAMPLES, Noisy, Plain, line

TorchLoader = torch.utils.data.DataLoader
pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),
]


class Line(lightning.LightningModule):
    """Fits a line, and notes the loss of each step."""

    def __init__(self):
        super().__init__()
        self.line = line()
        self.losses = []

    def _loss(self, batch):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.line(x), y)
        self.losses.append(loss.item())
        return loss

    def training_step(self, batch, index):
        return self._loss(batch)

    def validation_step(self, batch, index):
        self._loss(batch)

    def predict_step(self, batch, index):
        return batch

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.001)


class Positional(DataLoader):
    """A user's loader, of whose argument only Lightning's hook can know."""

    def __init__(self, scale, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.hidden = scale


def trainer(**options):
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 2, "devices": 1, **options},
    )


def fitted(loader_class, **options):
    """The losses and the weights after two epochs of training and validation."""
    lightning.seed_everything(3, verbose=False)
    model = Line()
    trainer().fit(
        model,
        loader_class(Noisy(), batch_size=3, shuffle=True, **options),
        loader_class(Noisy(), batch_size=4, **options),
    )
    return model.losses, [p.tolist() for p in model.parameters()]


@pytest.mark.parametrize(
    ("options", "iterator"),
    [
        ({}, "SingleProcessIterator"),
        ({"num_workers": 2}, "MultiProcessIterator"),
        ({"num_workers": 1, "persistent_workers": True}, "MultiProcessIterator"),
    ],
    ids=["no workers", "workers", "persistent"],
)
def test_fit_takes_our_batches_to_torchs_losses_and_weights(watch, options, iterator):
    theirs = fitted(TorchLoader, **options)
    assert not watch.batches
    assert fitted(DataLoader, **options) == theirs
    # Two batches are a check before training, then 4 and 3 in each epoch.
    assert watch.batches == {iterator: 2 + 2 * (4 + 3)}
    assert len(theirs[0]) == 16


def test_lightning_seeds_our_workers_as_torchs(monkeypatch):
    # Lightning sets it for the rest of the process.
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    losses = []
    for loader_class in (TorchLoader, DataLoader):
        lightning.seed_everything(3, workers=True, verbose=False)
        model = Line()
        loader = loader_class(Noisy(), batch_size=5, num_workers=1)
        trainer(max_epochs=1).fit(model, loader)
        assert loader.worker_init_fn.func.__name__ == "pl_worker_init_function"
        losses.append(model.losses)
    assert losses[0] == losses[1]


def test_lightning_ends_the_workers_of_a_fit_that_stops_early(watch):
    loader = DataLoader(Noisy(), num_workers=2, persistent_workers=True)
    trainer(limit_train_batches=2).fit(Line(), loader)
    assert loader._iterator is None
    assert watch.batches == {"MultiProcessIterator": 4}
    assert all(iterator._shutdown for iterator in watch.iterators)
    assert watch.workers_have_ended()


class Predicts(Line):
    """Makes its own loader, as Lightning's hook sees."""

    def predict_dataloader(self):
        return Positional(5, Plain(), batch_size=4, num_workers=1, max_restarts=2)


def test_a_loader_that_lightning_builds_again_is_ours_with_its_arguments(watch):
    predicting = trainer()
    batches = predicting.predict(Predicts())
    built = predicting.predict_dataloaders
    assert [batch.tolist() for batch in batches] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert (type(built), built.hidden, built.max_restarts) == (Positional, 5, 2)
    # Lightning wraps the batch sampler to know the indices, so this one is new.
    assert type(built.batch_sampler).__module__.startswith("lightning")
    assert watch.batches == {"MultiProcessIterator": 3}


def test_lightning_finds_every_argument_of_ours():
    options = {
        "num_workers": 2, "max_restarts": 3, "reorder_window": 9,
        "memory_limit": 1 << 20, "timeout": 5, "prefetch_factor": 3,
        "persistent_workers": True, "in_order": False,
    }  # fmt: skip
    loader = DataLoader(Plain(), 4, shuffle=True, **options)
    args, found = _get_dataloader_init_args_and_kwargs(loader, SequentialSampler([0]))
    assert args == ()
    assert {name: found[name] for name in options} == options
    with _replace_dunder_methods(TorchLoader, "dataset"):
        hooked = Positional(5, Plain(), num_workers=1)
    args, _ = _get_dataloader_init_args_and_kwargs(hooked, None)
    assert args[0] == 5


class Recording(Line):
    """Notes the batches and the sampler that each process gets, in a folder."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.seen = []

    def training_step(self, batch, index):
        self.seen.append(batch.tolist())
        return self.line(batch[:, None].expand(-1, 2)).sum()

    def on_train_end(self):
        loader = self.trainer.train_dataloader
        torch.save(
            {
                "class": type(loader).__module__,
                "sampler": type(loader.sampler),
                "batches": self.seen,
            },
            self.folder / f"{self.global_rank}.pt",
        )


def record(loader_class, folder):
    """Trains for two epochs in two processes."""
    torch.manual_seed(11)
    loader = loader_class(Plain(), batch_size=2, shuffle=True, num_workers=1)
    trainer(strategy="ddp_fork", devices=2).fit(Recording(folder), loader)


def test_two_processes_get_a_distributed_sampler_and_torchs_halves(tmp_path):
    seen = {}
    for loader_class in (TorchLoader, DataLoader):
        folder = tmp_path / loader_class.__module__
        folder.mkdir()
        record(loader_class, folder)
        seen[loader_class] = [
            torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)
        ]
    for ours, theirs in zip(seen[DataLoader], seen[TorchLoader], strict=True):
        assert ours["class"] == "gristmill.torch"
        assert ours["sampler"] is DistributedSampler
        assert ours["batches"] == theirs["batches"]
    # Together they read every sample in each epoch, in another order in the second.
    first, second = (
        [list(itertools.chain(*rank["batches"][part])) for rank in seen[DataLoader]]
        for part in (slice(3), slice(3, 6))
    )
    for halves in (first, second):
        assert sorted(itertools.chain(*halves)) == list(range(SAMPLES))
    assert first != second


def test_set_epoch_reaches_the_sampler():
    sampler = DistributedSampler(Plain(), num_replicas=2, rank=0)
    loader = DataLoader(Plain(), 5, sampler=sampler)
    [first], [again] = list(loader), list(loader)
    _set_sampler_epoch(loader, 1)
    [second] = loader
    assert first.tolist() == again.tolist() != second.tolist()
