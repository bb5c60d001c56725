"""Measures decoding JPEG files on a node of a Ray cluster.

Prints us per picture in wall time; lower is better.  512 files of 500 x 375 pixels are
decoded and resized to 224 x 224, in batches of 32, on a node of one CPU.  "this
machine" is the same loader with one process and no cluster: the speed of a node alone.
tf.data service runs TensorFlow's own operations in a process on one core, Ray Data uses
Pillow. Only Gristmill shuffles.

    python benchmarks/bench_ray_jpeg.py
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ray_peers
import ray_question
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch
from jpeg_question import SIDE, folder
from ray_peers import PICTURES
from workloads import SEED, one_byte_a_page


def _gristmill(**options: Any) -> Iterator[np.ndarray]:
    import gristmill
    from gristmill import images, sources

    batches = gristmill.load(
        sources.FolderDataSource(folder()),
        shuffle=True,
        seed=SEED,
        transformations=[
            images.DecodeImage(channels=3, key="image"),
            images.Resize((SIDE, SIDE), key="image"),
        ],
        batch_size=PICTURES,
        worker_count=1,
        **options,
    )
    for batch in batches:
        yield batch["image"]


def _on_actors(batches_per_call: int) -> Iterator[np.ndarray]:
    from gristmill.ray import RayWorkers

    actors = RayWorkers(1, batches_per_call=batches_per_call)
    return _gristmill(workers=actors)


def _measure(
    load: Callable[[], Iterator[np.ndarray]], on_cluster: bool, settings: Settings
) -> Measurement:
    with ray_question.cluster(nodes=1) if on_cluster else contextlib.nullcontext():
        batches = load()
        first = np.asarray(next(batches))
        seconds = seconds_per_batch(batches, 10 * settings.seconds, one_byte_a_page, 32)
        batches.close()
    answers = {"batches": f"{first.dtype} {first.shape}"}
    return Measurement(seconds / PICTURES * 1e6, answers)


QUESTION = Question(
    name="ray_jpeg",
    text="JPEG files decoded and resized by a node of a Ray cluster, 1 CPU",
    unit="us/picture",
    contestants={
        "gristmill": functools.partial(
            _measure, functools.partial(_on_actors, 4), True
        ),
        "gristmill, a call a batch": functools.partial(
            _measure, functools.partial(_on_actors, 1), True
        ),
        "this machine": functools.partial(_measure, _gristmill, False),
        "Ray Data": functools.partial(_measure, ray_peers.ray_pictures, True),
        "tf.data service": functools.partial(_measure, ray_peers.tf_pictures, False),
    },
    targets=(
        AtLeast(0.95, ("this machine",)),
        AtLeast(1, ("tf.data service",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
