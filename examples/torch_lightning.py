"""Train with Lightning, lose the job in mid-epoch, and resume from its checkpoint.

    python examples/torch_lightning.py

Lightning saves the state of a loader, if it has one, in its checkpoints. Training that
stops in the middle of an epoch and restarts with ``ckpt_path=`` reads each of the
remaining samples of that epoch once, and ends with the same weights, bit for bit, as
training without a stop. With torch's own loader it would restart the epoch.

    pip install 'gristmill[torch]' lightning scikit-learn
"""

import logging
import pathlib
import tempfile
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch_loop import BATCH_SIZE, LEARNING_RATE, accuracy, load_data, make_model

from gristmill.torch import StatefulDataLoader

EPOCHS = 4
STOP_STEP = 50  # An epoch has 23 steps.


class Classifier(lightning.LightningModule):
    """Classifies digits, and counts the images it has seen."""

    def __init__(self):
        super().__init__()
        self.model = make_model()
        self.image_count = 0

    def training_step(self, batch, index):
        images, labels = batch
        self.image_count += len(labels)
        return nn.functional.cross_entropy(self.model(images), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), LEARNING_RATE)

    # torch's generator determines the order of the next epochs.

    def on_save_checkpoint(self, checkpoint):
        checkpoint["generator"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint):
        self.generator_state = checkpoint["generator"]

    def on_train_start(self):
        if hasattr(self, "generator_state"):
            torch.set_rng_state(self.generator_state)


def fit(folder, digits, checkpoint=None):
    """Train from the beginning or a checkpoint, and write one at step `STOP_STEP`."""
    lightning.seed_everything(42, verbose=False)
    classifier = Classifier()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        callbacks=ModelCheckpoint(folder, "stop", every_n_train_steps=STOP_STEP),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = StatefulDataLoader(
        digits,
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    trainer.fit(classifier, loader, ckpt_path=checkpoint)
    return trainer, classifier


def run(folder: pathlib.Path):
    training_digits, test_digits = load_data()
    training_digits.augmented = False  # The noise would differ after the stop.

    trainer, uninterrupted = fit(folder, training_digits)
    print(
        f"Without a stop: {trainer.global_step} steps,"
        f" {uninterrupted.image_count} images, test accuracy"
        f" {accuracy(uninterrupted.model, test_digits):.1%}"
    )

    epochs = STOP_STEP / trainer.num_training_batches
    trainer, resumed = fit(folder, training_digits, folder / "stop.ckpt")
    print(
        f"From step {STOP_STEP}, after {epochs:.2f} epochs:"
        f" {resumed.image_count} images"
    )

    expected, weights = (
        nn.utils.parameters_to_vector(model.parameters())
        for model in (uninterrupted, resumed)
    )
    if not torch.equal(weights, expected):
        raise SystemExit("The weights differ from those of a run without a stop.")
    print("The weights are the same, bit for bit.")


def main():
    # Lightning logs a lot, and recommends more workers.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        run(pathlib.Path(folder))


if __name__ == "__main__":
    main()
