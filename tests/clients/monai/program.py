"""Loads patches of volumes with MONAI's loaders and datasets, and trains on them."""

import monai
import numpy as np
import torch
from monai.data import (
    CacheDataset,
    DataLoader,
    Dataset,
    GridPatchDataset,
    PatchIterd,
    SmartCacheDataset,
    ThreadDataLoader,
)
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import MeanDice, ValidationHandler, from_engine
from monai.transforms import (
    AsDiscreted,
    Compose,
    EnsureChannelFirstd,
    RandCropByPosNegLabeld,
    RandFlipd,
    RandGaussianNoised,
    ScaleIntensityd,
)

KEYS = ("image", "label")


def volumes():
    rng = np.random.default_rng(1)
    for _ in range(10):
        image = rng.random((12, 14, 16), np.float32)
        yield {"image": image, "label": (image > 0.7).astype(np.float32)}


def steps(train):
    both = [
        EnsureChannelFirstd(KEYS, channel_dim="no_channel"),
        ScaleIntensityd("image"),
    ]
    randomly = [
        RandCropByPosNegLabeld(KEYS, "label", (8, 8, 8), num_samples=2),
        RandFlipd(KEYS, prob=0.5, spatial_axis=0),
        RandGaussianNoised("image", prob=0.5),
    ]
    return Compose(both + (randomly if train else []))


def loaded(workers):
    options = {"batch_size": 2, "num_workers": workers}
    data = [*volumes()]
    cached = CacheDataset(data, steps(True), cache_num=5, progress=False)
    yield "cached", DataLoader(cached, shuffle=True, **options)
    smart = SmartCacheDataset(
        data, steps(True), replace_rate=0.2, cache_num=5, progress=False
    )
    yield "smart", DataLoader(smart, **options)
    threads = ThreadDataLoader(Dataset(data, steps(True)), shuffle=True, **options)
    yield "thread", threads
    patches = PatchIterd(["image"], patch_size=(6, 7, 8), mode="wrap")
    grid = GridPatchDataset(data[:3], patches, with_coordinates=False)
    yield "patches", DataLoader(grid, **options)


def trained(workers):
    monai.utils.set_determinism(4)
    data = [*volumes()]
    seen = []
    network = monai.networks.nets.UNet(
        spatial_dims=3, in_channels=1, out_channels=1, channels=(4, 8), strides=(2,)
    )
    metric = {
        "dice": MeanDice(output_transform=from_engine(["pred", "label"])),
    }
    evaluator = SupervisedEvaluator(
        device=torch.device("cpu"),
        val_data_loader=DataLoader(
            Dataset(data[:4], steps(False)), num_workers=workers, batch_size=1
        ),
        network=network,
        postprocessing=AsDiscreted("pred", threshold=0.5),
        key_val_metric=metric,
        decollate=True,
    )
    trainer = SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=2,
        train_data_loader=DataLoader(
            Dataset(data, steps(True)),
            num_workers=workers,
            batch_size=2,
            shuffle=True,
        ),
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        loss_function=monai.losses.DiceLoss(sigmoid=True),
        decollate=False,
        train_handlers=[ValidationHandler(1, evaluator)],
    )

    @trainer.on(monai.engines.utils.IterationEvents.MODEL_COMPLETED)
    def keep(engine):
        batch = engine.state.batch
        loss = engine.state.output["loss"].item()
        seen.append((batch["image"], batch["label"], loss))

    trainer.run()
    yield "steps", seen
    yield "metrics", dict(evaluator.state.metrics)
    yield "weights", dict(network.state_dict())


def main():
    for workers in (0, 2):
        monai.utils.set_determinism(3)
        for name, loader in loaded(workers):
            for epoch in range(2):
                for batch in loader:
                    patch = batch["image"] if isinstance(batch, dict) else batch
                    yield f"{workers} workers, {name}, epoch {epoch}", patch
        for name, value in trained(workers):
            yield f"{workers} workers, trained: {name}", value
