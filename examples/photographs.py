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

OF_SKIMAGE = (
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
OF_SKLEARN = ("china", "flower")
# Mean and standard deviation of the values of ImageNet's pictures, in [0, 1].
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photographs() -> dict[str, np.ndarray]:
    """Return the photographs by name: uint8 of (H, W, 3), or (H, W) if gray."""
    found = {name: getattr(data, name)() for name in OF_SKIMAGE}
    return found | {name: load_sample_image(f"{name}.jpg") for name in OF_SKLEARN}


def write(folder: pathlib.Path) -> None:
    """Write ``folder/train/CLASS/NUMBER.jpg`` and the same below ``folder/test``."""
    rng = np.random.default_rng(0)
    for name, photograph in photographs().items():
        eighth = photograph.shape[1] // 8
        west, middle, east = np.split(photograph, [3 * eighth, 5 * eighth], axis=1)
        for part, pieces in {"train": [west, east], "test": [middle]}.items():
            to = folder / part / name
            to.mkdir(parents=True)
            for number in range(TILES[part]):
                pixels = pieces[number % len(pieces)]
                top, left = rng.integers(np.array(pixels.shape[:2]) - TILE + 1)
                tile = pixels[top : top + TILE, left : left + TILE]
                Image.fromarray(tile).save(to / f"{number:03d}.jpg", quality=90)


def main(about: str, run: Callable[[pathlib.Path, int], None]) -> None:
    """Call an example's `run` with the folder and the number of epochs from options."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, help="an empty folder for files")
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    if arguments.data:
        run(arguments.data, arguments.epochs)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(pathlib.Path(folder), arguments.epochs)
