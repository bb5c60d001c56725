"""Write folders of small JPEG files, cut out of photographs in Python packages.

The examples `train_photographs.py` and `torch_photographs.py` read these files. Twelve
photographs of scikit-image and scikit-learn are the classes, and tiles of them the
pictures. Test tiles come from the middle quarter of each photograph and training tiles
from the rest, so that no pixel is in both.

    pip install 'gristmill[image]' scikit-image scikit-learn
"""

import argparse
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_image

TILE = 80  # Pixels along an edge of a file.
TILES = {"train": 120, "test": 30}  # From each photograph.

SKIMAGE_NAMES = (
    "astronaut",
    "brick",
    "chelsea",
    "coffee",
    "grass",
    "gravel",
    "hubble_deep_field",
    "immunohistochemistry",
    "retina",
    "rocket",
)
SKLEARN_NAMES = ("china", "flower")
# Mean and standard deviation of the values of ImageNet's pictures, in [0, 1].
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photographs() -> dict[str, np.ndarray]:
    """Return the photographs by name: uint8 of (H, W, 3), or (H, W) if gray."""
    skimage = {name: getattr(data, name)() for name in SKIMAGE_NAMES}
    return skimage | {name: load_sample_image(f"{name}.jpg") for name in SKLEARN_NAMES}


def write(folder: pathlib.Path) -> None:
    """Write ``folder/train/CLASS/NUMBER.jpg`` and the same below ``folder/test``."""
    rng = np.random.default_rng(0)
    for name, photograph in photographs().items():
        eighth = photograph.shape[1] // 8
        west, middle, east = np.split(photograph, [3 * eighth, 5 * eighth], axis=1)
        for part, pieces in {"train": [west, east], "test": [middle]}.items():
            class_folder = folder / part / name
            class_folder.mkdir(parents=True)
            for number in range(TILES[part]):
                pixels = pieces[number % len(pieces)]
                top, left = rng.integers(np.array(pixels.shape[:2]) - TILE + 1)
                tile = pixels[top : top + TILE, left : left + TILE]
                path = class_folder / f"{number:03d}.jpg"
                Image.fromarray(tile).save(path, quality=90)


def main(description: str, run: Callable[[pathlib.Path, int], None]) -> None:
    """Call an example's `run` with the folder and the number of epochs from options."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, help="an empty folder for files")
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    if arguments.data:
        run(arguments.data, arguments.epochs)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(pathlib.Path(folder), arguments.epochs)
