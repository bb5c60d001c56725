"""Records a robot's episodes, and loads frames and their past as the trainer does.

Uses `EpisodeAwareSampler`, windows of time, transforms of pictures, and statistics.
"""

import itertools

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.sampler import EpisodeAwareSampler
from lerobot.datasets.transforms import ImageTransforms, ImageTransformsConfig
from lerobot.datasets.utils import cycle

FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (3,), "names": ["x", "y", "z"]},
    "observation.images.top": {
        "dtype": "image",
        "shape": (24, 32, 3),
        "names": ["height", "width", "channels"],
    },
    "action": {"dtype": "float32", "shape": (2,), "names": ["left", "right"]},
}
# Seconds before and after a frame, at 10 frames a second.
WINDOWS = {"observation.state": [-0.2, -0.1, 0.0], "action": [0.0, 0.1, 0.2]}


def record():
    """Write five episodes with LeRobot's writer."""
    draws = np.random.default_rng(1)
    dataset = LeRobotDataset.create(
        "local/robot", fps=10, features=FEATURES, root="robot", use_videos=False
    )
    for episode in range(5):
        for _ in range(9 + episode):
            frame = {
                "observation.state": draws.random(3, dtype=np.float32),
                "observation.images.top": draws.integers(0, 256, (24, 32, 3), np.uint8),
                "action": draws.random(2, dtype=np.float32),
            }
            dataset.add_frame(frame, task=f"task {episode % 2}")
        dataset.save_episode()
    return dataset.meta.stats


def opened(**options):
    return LeRobotDataset("local/robot", root="robot", **options)


def shuffled(workers):
    """Yield batches from endless epochs, as `lerobot.scripts.train` does."""
    torch.manual_seed(2)
    transforms = ImageTransforms(ImageTransformsConfig(enable=True))
    dataset = opened(delta_timestamps=WINDOWS, image_transforms=transforms)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=8, shuffle=True, num_workers=workers, drop_last=False
    )
    yield from itertools.islice(cycle(loader), 10)


def of_episodes(workers):
    torch.manual_seed(3)
    dataset = opened(episodes=[0, 1, 2], delta_timestamps=WINDOWS)
    sampler = EpisodeAwareSampler(
        dataset.episode_data_index, drop_n_last_frames=2, shuffle=True
    )
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=6, sampler=sampler, num_workers=workers
    )
    for _ in range(2):
        yield from loader


def main():
    yield "statistics", record()
    for workers in (0, 2):
        for batch in shuffled(workers):
            yield f"{workers} workers, shuffled", batch
        for batch in of_episodes(workers):
            yield f"{workers} workers, episodes", batch
