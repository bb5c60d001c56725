"""Train a digit classifier with torch's DDP, whose ranks share one loader's workers.

    torchrun --nproc-per-node 2 examples/ddp_share.py [--epochs N]

Started without torchrun, the program starts two ranks itself. They run on CPUs, with
the backend gloo. The images are scikit-learn's 1,797 handwritten digits, 8 x 8 pixels
each.

Only `host.share(loader)` differs from a loop in which each rank has workers of its own.
The program trains a second model that way, with `DistributedSampler`. Both models see
the same batches, so they end with the same weights, bit for bit.

    pip install 'gristmill[torch]' scikit-learn
"""

import argparse
import os
import socket
import subprocess
import sys

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset

from gristmill import host
from gristmill.torch import DataLoader

BATCH_SIZE = 32
WORKERS = 2
LEARNING_RATE = 0.003
# The ranks that this program starts without torchrun.
RANKS = 2


def load_data():
    """Return the images, float32 of shape (1, 8, 8), and their labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 16
    return TensorDataset(images, torch.from_numpy(digits.target))


def make_model():
    torch.manual_seed(42)  # All ranks begin with the same weights.
    layers = nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten()
    return DistributedDataParallel(nn.Sequential(*layers, nn.Linear(16 * 64, 10)))


def train(batches_of_epoch, epochs):
    """Train a model; return it with the last loss of this rank.

    Args:
        batches_of_epoch: Returns an iterator over this rank's batches of an epoch.
        epochs: The number of epochs.
    """
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    for epoch in range(epochs):
        for images, labels in batches_of_epoch(epoch):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model, loss.item()


def shared_batches(dataset):
    """Return the function for `train` of a loader that all ranks share."""
    loader = DataLoader(
        dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=WORKERS
    )

    def batches_of_epoch(epoch):
        loader.set_epoch(epoch)
        # torchrun's variables contain the name, the rank and the number of ranks.
        return host.share(loader)

    return batches_of_epoch


def own_batches(dataset):
    """Return the function for `train` of a loader with workers of its own."""
    sampler = DistributedSampler(dataset)
    loader = DataLoader(
        dataset, batch_size=BATCH_SIZE, sampler=sampler, num_workers=WORKERS
    )

    def batches_of_epoch(epoch):
        sampler.set_epoch(epoch)
        return loader

    return batches_of_epoch


def run_rank(epochs):
    """Train both models as one rank of a process group."""
    torch.set_num_threads(1)  # Threads would compete with the workers.
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    dataset = load_data()
    model, loss = train(shared_batches(dataset), epochs)
    loss = torch.tensor(loss)
    torch.distributed.all_reduce(loss)
    if rank == 0:
        print(f"{ranks} ranks: the mean of the last losses is {loss / ranks:.3f}")
    other, _ = train(own_batches(dataset), epochs)
    weights = [nn.utils.parameters_to_vector(m.parameters()) for m in (model, other)]
    torch.distributed.destroy_process_group()
    if not torch.equal(*weights):
        raise SystemExit("The weights differ.")
    if rank == 0:
        print("The weights are the same, bit for bit.")


def start_ranks(count):
    """Start this program once for each rank, like torchrun; return an exit status."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = []
    for rank in range(count):
        variables = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": count,
            "LOCAL_WORLD_SIZE": count,
        }
        environment = os.environ | {name: str(variables[name]) for name in variables}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
    return max(abs(rank.wait()) for rank in ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=5, help="at least 1")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {arguments.epochs}.")
    if "RANK" in os.environ:
        run_rank(arguments.epochs)
        return
    print(f"Started without torchrun: this program starts {RANKS} ranks.", flush=True)
    raise SystemExit(start_ranks(RANKS))


if __name__ == "__main__":
    main()
