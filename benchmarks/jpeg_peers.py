"""Pictures through Gristmill and its peers: crop of random size, resize, flip.

Every function yields the batches, arrays of shape (128, 224, 224, 3) or (128, 3, 224,
224), of all pictures shuffled, without end.  Libraries are imported inside, so that a
process imports only the one it measures.
"""

import functools
import io
import math
from typing import Any

import numpy as np

import peers
from jpeg_question import (
    BATCH_SIZE,
    MEAN,
    SIDE,
    STD,
    WORKERS,
    Batches,
    Files,
    folder,
)
from workloads import SEED

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def crop_box(
    height: int, width: int, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draws top, left, height and width like torchvision's RandomResizedCrop."""
    for _ in range(10):
        area = height * width * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top = int(rng.integers(height - rows + 1))
            return top, int(rng.integers(width - columns + 1)), rows, columns
    return 0, 0, height, width


def decode(element: dict[str, Any]) -> dict[str, Any]:
    """A user's Map: a file's pixels, by Pillow."""
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(element["image"])).convert("RGB")
    return {**element, "image": np.asarray(image)}


def crop_and_flip(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A user's RandomMap: a crop of random size, resized by Pillow, and a flip."""
    import PIL.Image

    pixels = element["image"]
    top, left, rows, columns = crop_box(*pixels.shape[:2], rng)
    image = PIL.Image.fromarray(pixels[top : top + rows, left : left + columns])
    image = image.resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    if rng.random() < 0.5:
        pixels = np.ascontiguousarray(pixels[:, ::-1])
    return {**element, "image": pixels}


def normalize(element: dict[str, Any]) -> dict[str, Any]:
    """A user's Map: normalized float32, channel by channel."""
    scale = np.float32(1 / 255) / np.float32(STD)
    shift = np.float32(MEAN) / np.float32(STD)
    pixels = element["image"] * scale - shift
    return {**element, "image": np.ascontiguousarray(pixels.transpose(2, 0, 1))}


def _loader(
    grain: Any, source: Any, operations: list[Any], workers: int, **options: Any
) -> Batches:
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.IndexSampler(
            len(source),
            shard_options=grain.sharding.NoSharding(),
            shuffle=True,
            seed=SEED,
        ),
        operations=[*operations, grain.transforms.Batch(BATCH_SIZE)],
        worker_count=workers,
        **options,
    )
    for batch in loader:
        yield batch["image"]


def gristmill(
    normalized: bool, workers: int = WORKERS, threads: int | None = None
) -> Batches:
    """Gristmill's own transforms over its own source of class folders."""
    import gristmill
    from gristmill import images, sources

    operations = [
        images.DecodeImage(channels=3, key="image"),
        images.RandomResizedCrop(SIDE, key="image"),
        images.RandomHorizontalFlip(key="image"),
    ]
    if normalized:
        operations.append(images.Normalize(MEAN, STD, key="image"))
        operations.append(images.ToLayout("CHW", key="image"))
    options = {}
    if threads is not None:
        options["read_options"] = gristmill.ReadOptions(num_threads=threads)
    source = sources.FolderDataSource(folder())
    return _loader(gristmill, source, operations, workers, **options)


def _by_hand(grain: Any, normalized: bool, **options: Any) -> Batches:
    def step(kind: str, function: Any) -> Any:
        base = {"map": grain.transforms.Map, "random_map": grain.transforms.RandomMap}
        body = {kind: staticmethod(function)}
        return type(function.__name__, (base[kind],), body)()

    steps = [step("map", decode), step("random_map", crop_and_flip)]
    if normalized:
        steps.append(step("map", normalize))
    return _loader(grain, Files(), steps, WORKERS, **options)


def gristmill_pillow(normalized: bool) -> Batches:
    """Gristmill with functions by Pillow, instead of its image transforms."""
    return _by_hand(peers.import_gristmill(), normalized)


def grain_default(normalized: bool) -> Batches:
    """Grain with the same functions and its default options."""
    return _by_hand(peers.import_grain(), normalized)


def grain_no_threads(normalized: bool) -> Batches:
    """Grain with the same functions and no reading threads."""
    grain = peers.import_grain()
    return _by_hand(grain, normalized, read_options=grain.ReadOptions(0, 0))


class _TorchPictures:
    """A torch dataset of tensors: torchvision's decoder and its transforms v2."""

    def __init__(self, normalized: bool, by_pillow: bool) -> None:
        import torch
        from torchvision.transforms import v2

        self.files = Files()
        self.by_pillow = by_pillow
        steps: list[Any] = [v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip()]
        if by_pillow:
            steps.append(v2.PILToTensor())
        if normalized:
            steps.append(v2.ToDtype(torch.float32, scale=True))
            steps.append(v2.Normalize(MEAN, STD))
        self.transform = v2.Compose(steps)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        from torchvision import io as vision_io

        path, label = self.files.files[index]
        if self.by_pillow:
            import PIL.Image

            image = PIL.Image.open(path).convert("RGB")
        else:
            mode = vision_io.ImageReadMode.RGB
            image = vision_io.decode_jpeg(vision_io.read_file(path), mode)
        return self.transform(image), label


def torch(normalized: bool, by_pillow: bool = False) -> Batches:
    """PyTorch's DataLoader over torchvision's decoder, or over Pillow's."""
    from torch.utils.data import DataLoader, RandomSampler

    pictures = _TorchPictures(normalized, by_pillow)
    # One long epoch, so that workers are not restarted.
    sampler = RandomSampler(pictures, num_samples=len(pictures) * 100_000)
    loader = DataLoader(
        pictures, batch_size=BATCH_SIZE, sampler=sampler, num_workers=WORKERS
    )
    for image, _ in loader:
        yield image.numpy()


def dali(normalized: bool) -> Batches:
    """DALI's pipeline on the CPU, with as many threads as the others have workers."""
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=WORKERS, device_id=None)
    def pipeline() -> Any:
        files, _ = fn.readers.file(file_root=folder(), random_shuffle=True)
        image = fn.decoders.image_random_crop(
            files, random_area=SCALE, random_aspect_ratio=RATIO
        )
        image = fn.resize(
            image, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True
        )
        mirrored = fn.random.coin_flip()
        if not normalized:
            return fn.flip(image, horizontal=mirrored)
        return fn.crop_mirror_normalize(
            image,
            dtype=types.FLOAT,
            output_layout="CHW",
            mirror=mirrored,
            mean=[255 * mean for mean in MEAN],
            std=[255 * std for std in STD],
        )

    running = pipeline()
    running.build()
    while True:
        (images,) = running.run()
        yield np.asarray(images.as_tensor())


PEERS = {
    "gristmill, Pillow": gristmill_pillow,
    "torch": torch,
    "torch, Pillow": functools.partial(torch, by_pillow=True),
    "dali": dali,
    "grain default": grain_default,
    "grain (0, 0)": grain_no_threads,
}
