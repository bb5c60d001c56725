"""Train with Accelerate, lose the job in mid-epoch, and resume from its state.

    python examples/torch_accelerate.py
    torchrun --nproc-per-node 2 examples/torch_accelerate.py

Accelerate builds its own loader from the one that it prepares, and ignores that
loader's class. After ``gristmill.torch.install()`` it builds Gristmill's. Training
resumed from a state in the middle of an epoch ends with the same weights, bit for bit,
as training without a stop.

    pip install 'gristmill[torch]' accelerate scikit-learn
"""

import pathlib
import tempfile

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration, broadcast_object_list, set_seed
from torch import nn
from torch_loop import BATCH_SIZE, LEARNING_RATE, accuracy, load_data, make_model

from gristmill.torch import DataLoader, install

EPOCHS = 3
STOP = (1, 7)  # Epoch and batch before which the state is saved.


def prepare(accelerator, digits):
    """Return the model, the optimizer and the loader, prepared by Accelerate."""
    set_seed(42)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    loader = DataLoader(
        digits,
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    return accelerator.prepare(model, optimizer, loader)


def train(accelerator, model, optimizer, loader, folder, start=(0, 0)):
    """Train to the end from a batch of an epoch; return the number of batches."""
    batch_count = 0
    for epoch in range(start[0], EPOCHS):
        loader.set_epoch(epoch)
        first = start[1] if epoch == start[0] else 0
        batches = skip_first_batches(loader, first) if first else loader
        for index, (images, labels) in enumerate(batches, first):
            if (epoch, index) == STOP != start:
                accelerator.save_state(folder)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            batch_count += 1
    return batch_count


def run(accelerator, folder: pathlib.Path):
    training_digits, test_digits = load_data()
    training_digits.augmented = False  # The noise would differ after the stop.

    uninterrupted = prepare(accelerator, training_digits)
    name = type(uninterrupted[2].base_dataloader).__module__
    accelerator.print(f"Accelerate has built a loader of {name}")
    batch_count = train(accelerator, *uninterrupted, folder)
    test_accuracy = accuracy(uninterrupted[0], test_digits)
    accelerator.print(
        f"Without a stop: {batch_count} batches, test accuracy {test_accuracy:.1%}"
    )

    accelerator.free_memory()  # Forget the model, as in a new process.
    resumed = prepare(accelerator, training_digits)
    accelerator.load_state(folder)
    batch_count = train(accelerator, *resumed, folder, STOP)
    accelerator.print(f"From epoch {STOP[0]}, batch {STOP[1]}: {batch_count} batches")

    expected, weights = (
        nn.utils.parameters_to_vector(parts[0].parameters())
        for parts in (uninterrupted, resumed)
    )
    if not torch.equal(weights, expected):
        raise SystemExit("The weights differ from those of a run without a stop.")
    accelerator.print("The weights are the same, bit for bit.")


def main():
    install()
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    with tempfile.TemporaryDirectory() as folder:
        # All ranks use the folder of the first one.
        [shared_folder] = broadcast_object_list([folder])
        run(accelerator, pathlib.Path(shared_folder))
        accelerator.end_training()


if __name__ == "__main__":
    main()
