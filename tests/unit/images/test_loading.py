"""Tests that loaders, workers and chains make batches equal to single transforms."""

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

import gristmill as g
from gristmill import images
from gristmill.batching import make_batch
from gristmill.torch import DataLoader
from gristmill.transforms import Batch, DecodeImage, Map
from support.deferring import outputs_of

COUNT = 14
# Transforms are not deferred if there is a batch_fn.
ONE_BY_ONE = Batch(4, batch_fn=make_batch)
TRANSFORMS = {
    "train": [
        DecodeImage(channels=3, key="image"),
        images.RandomResizedCrop(24, key="image"),
        images.RandomHorizontalFlip(key="image"),
        images.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), key="image"),
        images.ToLayout("CHW", key="image"),
    ],
    "evaluation": [
        DecodeImage(channels=3, key="image"),
        images.Resize(30, key="image"),
        images.CenterCrop(32, key="image"),
    ],
    "a second run": [
        DecodeImage(channels=3, key="image"),
        images.RandomResizedCrop((30, 20), key="image"),
        images.Resize((9, 11), "bicubic", key="image"),
    ],
    "a size": [DecodeImage(channels=1, key="image", size=(20, 25))],
}


def file_of(number: int) -> bytes:
    """Return an image file whose size, kind and mode depend on the number."""
    rng = np.random.default_rng(number)
    height, width = rng.integers(33, 90, 2).tolist()
    small = rng.integers(0, 256, (4, 4, 3), np.uint8)
    picture: Any = PIL.Image.fromarray(small).resize((width, height))
    mode = ("RGB", "L", "RGB", "CMYK")[number % 4]
    kind = "PNG" if number % 4 == 2 else "JPEG"
    options: dict[str, Any] = {} if kind == "PNG" else {"progressive": number % 3 == 0}
    file = io.BytesIO()
    picture.convert(mode).save(file, kind, **options)
    return file.getvalue()


def records(bad: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    made = [{"image": file_of(n), "label": n} for n in range(COUNT)]
    for number in bad:
        data = made[number]["image"]
        made[number]["image"] = data[: len(data) // 2]
    return made


def loader(name: str, batch: Batch, bad: tuple[int, ...] = (), **options: Any) -> Any:
    sampler = g.samplers.IndexSampler(COUNT, shuffle=True, seed=5, num_epochs=1)
    return g.DataLoader(
        data_source=records(bad),
        sampler=sampler,
        operations=[*TRANSFORMS[name], batch],
        **options,
    )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_loader_batches_do_not_depend_on_threads(name):
    expected = outputs_of(iter(loader(name, ONE_BY_ONE)))
    assert len(expected) == 4
    for threads in (1, 2):
        options = g.ReadOptions(threads)
        found = outputs_of(iter(loader(name, Batch(4), read_options=options)))
        assert found == expected


def test_worker_batches_match_single_steps():
    expected = outputs_of(iter(loader("train", ONE_BY_ONE, worker_count=2)))
    iterator = iter(loader("train", Batch(4), worker_count=2))
    assert outputs_of(iterator, 2) == expected[:2]
    iterator.set_state(iterator.get_state())
    assert outputs_of(iterator) == expected[2:]
    iterator.close()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("on_error", ["raise", "skip", "substitute"])
def test_bad_pictures_are_reported_like_single_steps(on_error, workers):
    how = {"bad": (3, 8, 9), "on_error": on_error, "worker_count": workers}
    found = []
    for batch in (ONE_BY_ONE, Batch(4)):
        iterator = iter(loader("train", batch, **how))
        found.append((outputs_of(iterator), str(iterator.errors)))
        iterator.close()
    assert found[0] == found[1]
    assert "CorruptRecord" in str(found[0])


def test_user_map_before_decoding_gives_same_batches():
    class Unpack(Map):
        def map(self, element):
            return {"image": element["image"], "twice": 2 * element["label"]}

    found = []
    for batch in (ONE_BY_ONE, Batch(4)):
        operations = [Unpack(), *TRANSFORMS["train"], batch]
        built = g.load(
            records(), transformations=operations, shuffle=True, seed=1, num_epochs=1
        )
        found.append(outputs_of(iter(built)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_chain_batches_match_single_steps(name):
    for form in ("indexed", "iterated"):
        found = []
        for batch_fn in (make_batch, None):
            ds = g.MapDataset.source(records(bad=(9,))).seed(3).shuffle()
            if form == "iterated":
                ds = ds.to_iter_dataset()
            ds = ds.apply(TRANSFORMS[name]).batch(4, batch_fn=batch_fn)
            found.append(outputs_of(iter(ds)))
        assert found[0] == found[1]
        assert "CorruptRecord" in str(found[0])


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_match_torch_data_loader(workers):
    ds = g.MapDataset.source(records()).seed(3).apply(TRANSFORMS["train"])
    # The default start method depends on whether other tests have used JAX.
    context = "fork" if workers else None
    for found, expected in zip(
        DataLoader(ds, 4, num_workers=workers, multiprocessing_context=context),
        torch.utils.data.DataLoader(ds, 4),
        strict=True,
    ):
        assert found["image"].dtype == torch.float32
        assert found["image"].is_contiguous()
        assert torch.equal(found["image"], expected["image"])
        assert torch.equal(found["label"], expected["label"])
