"""A task for Lightning. Importing it takes seconds, and makes forks slower."""

import lightning
import torch
from lightning.fabric.utilities.data import _replace_dunder_methods, _set_sampler_epoch
from lightning.pytorch.utilities.data import _get_dataloader_init_args_and_kwargs

from gristmill.torch import DataLoader
from trainers.small import Plain, line

seed_everything = lightning.seed_everything
# Functions by which Lightning rebuilds loaders.
find_arguments = _get_dataloader_init_args_and_kwargs
replace_dunder_methods = _replace_dunder_methods
set_sampler_epoch = _set_sampler_epoch


class Line(lightning.LightningModule):
    """Fits a line, and records the loss of each step."""

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
    """A user-defined loader whose argument only Lightning's hook can find."""

    def __init__(self, scale, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.hidden = scale


class Predicts(Line):
    """Makes its own loader, which Lightning's hook records."""

    def predict_dataloader(self):
        return Positional(5, Plain(), batch_size=4, num_workers=1, max_restarts=2)


class Recording(Line):
    """Saves the batches and the sampler of each process to a folder."""

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


def trainer(**options):
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 2, "devices": 1, **options},
    )
