"""JPEG files for benchmarks, made once, and functions that time pictures.

The files are in the temporary folder: 512 files of 500 x 375 pixels in 4 class folders,
cut out of the two photographs of scikit-learn. Each picture is cropped at a random
size, resized to 224 x 224 and flipped unfinished the time, as for training ImageNet's
networks.
"""

import os
import pathlib
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil

from harness import Measurement, Settings, seconds_per_batch
from record_files import FOLDER, cached_file
from workloads import SEED, one_byte_a_page

FILES = 512
CLASSES = 4
HEIGHT, WIDTH = 375, 500
QUALITY = 92
SIDE = 224
BATCH_SIZE = 128
WORKERS = 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# By then every process has touched all memory that is reused.
WARM_BATCHES = 24

Batches = Iterator[Any]


def folder() -> str:
    """Returns the folder of the pictures, written when first needed."""
    target = FOLDER / f"jpeg-{FILES}-{WIDTH}x{HEIGHT}-{QUALITY}"
    if not target.exists():
        unfinished = pathlib.Path(f"{target}.{os.getpid()}")
        _write(unfinished)
        try:
            os.replace(unfinished, target)
        except OSError:  # Another process was faster.
            shutil.rmtree(unfinished)
    return str(target)


def _write(target: pathlib.Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images().images
    rng = np.random.default_rng(SEED)
    for number in range(FILES):
        photograph = photographs[number % len(photographs)]
        rows, columns = photograph.shape[:2]
        top = rng.integers(rows - HEIGHT + 1)
        left = rng.integers(columns - WIDTH + 1)
        pixels = photograph[top : top + HEIGHT, left : left + WIDTH]
        path = target / str(number % CLASSES) / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=QUALITY)


def files() -> list[tuple[str, int]]:
    """Returns the path and class of each picture."""
    paths = sorted(pathlib.Path(folder()).glob("*/*.jpg"))
    return [(str(path), int(path.parent.name)) for path in paths]


class Files:
    """A user's source: ``{"image": bytes, "label": int}`` of each file."""

    def __init__(self) -> None:
        self.files = files()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path, label = self.files[index]
        with open(path, "rb") as file:
            return {"image": file.read(), "label": label}


def bare(normalized: bool, settings: Settings) -> Measurement:
    """Returns the us of processor time per picture of ``bare_jpeg.c``, 2 processes."""
    source = pathlib.Path(__file__).with_name("bare_jpeg.c")

    def build(path: str) -> None:
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-O3", str(source), "-ljpeg", "-lm", "-o", path]
        subprocess.run(command, check=True)

    program = cached_file(f"bare-jpeg-{zlib.crc32(source.read_bytes()):x}", build)
    command = [program, str(WORKERS), str(3 * settings.seconds), str(int(normalized))]
    paths = "\n".join(path for path, _ in files())
    done = subprocess.run(command, input=paths, stdout=subprocess.PIPE, text=True)
    done.check_returncode()
    return Measurement(float(done.stdout))


def tree_seconds() -> float:
    """Returns the processor time of this process and its descendants, in seconds."""
    root = psutil.Process()
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def measure(
    load: Callable[[bool], Batches],
    normalized: bool,
    clock: Callable[[], float],
    settings: Settings,
) -> Measurement:
    """Returns the us of `clock` per picture, for batches that `load` yields as arrays.

    `load` is called with `normalized`: True for float32 of (3, 224, 224), False for
    uint8 of either layout.
    """
    batches = load(normalized)
    first = np.asarray(next(batches))
    answers = {"batches": f"{first.dtype} {_shape(first.shape, normalized)}"}
    seconds = seconds_per_batch(
        batches, 3 * settings.seconds, one_byte_a_page, WARM_BATCHES, clock=clock
    )
    batches.close()
    return Measurement(seconds / BATCH_SIZE * 1e6, answers)


def _shape(shape: tuple[int, ...], normalized: bool) -> list[int]:
    return list(shape) if normalized else sorted(shape)
