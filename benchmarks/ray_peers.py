"""Ray Data and tf.data service, for the questions about clusters.

With tf.data service, Python functions run in the process that made them, so its two
workers are then in this process. TensorFlow's own operations run in a separate process.
"""

import atexit
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from jpeg_question import SIDE, files
from workloads import Workload

WORKERS = 2
PICTURES = 32


def ray_data(work: Workload, *, preserve_order: bool = False) -> Iterator[Any]:
    """Ray Data: a map of rows, and batches of them, without a shuffle."""
    import ray

    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = preserve_order
    context.enable_progress_bars = False
    step = work.step

    def map_row(row: dict[str, Any]) -> dict[str, Any]:
        return {"x": step(row["id"])}

    data = ray.data.range(len(work.source)).map(map_row)
    epochs = 0
    while work.epochs is None or epochs < work.epochs:
        yield from data.iter_batches(batch_size=work.batch_size, prefetch_batches=4)
        epochs += 1


def tf_data_service(work: Workload) -> Iterator[Any]:
    """tf.data service: a map of a Python function, by two workers in this process."""
    import tensorflow as tf

    dispatcher, _ = _service()
    shape, kind = work.step(0).shape, work.step(0).dtype

    def map_number(number: Any) -> Any:
        record = tf.numpy_function(work.step, [number], kind)
        record.set_shape(shape)
        return {"x": record}

    data = tf.data.Dataset.range(len(work.source)).map(map_number)
    data = data.batch(work.batch_size)
    data = _distribute(data, dispatcher.target)
    epochs = 0
    while work.epochs is None or epochs < work.epochs:
        yield from data.as_numpy_iterator()
        epochs += 1


@functools.cache
def _service() -> tuple[Any, list[Any]]:
    """Returns the dispatcher and the workers, which must stay alive for later calls."""
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    config = service.WorkerConfig(_address(dispatcher))
    atexit.register(_exit_at_once)
    return dispatcher, [service.WorkerServer(config) for _ in range(WORKERS)]


def _exit_at_once() -> None:
    """End the process, because stopping workers with the interpreter would hang."""
    sys.stdout.flush()
    os._exit(0)


WORKER = """
import os
import sys

os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
import tensorflow as tf

service = tf.data.experimental.service
server = service.WorkerServer(service.WorkerConfig(sys.argv[1]))
sys.stdin.read()
"""


def tf_pictures() -> Iterator[np.ndarray]:
    """tf.data service: JPEG files by TensorFlow's own operations, on one core."""
    import tensorflow as tf

    dispatcher = tf.data.experimental.service.DispatchServer()
    command = [sys.executable, "-c", WORKER, _address(dispatcher)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE)

    def picture(path: Any) -> Any:
        pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        resized = tf.image.resize(pixels, (SIDE, SIDE), antialias=True)
        return tf.cast(tf.round(resized), tf.uint8)

    paths = tf.data.Dataset.from_tensor_slices([path for path, _ in files()])
    data = paths.repeat().map(picture).batch(PICTURES)
    try:
        yield from _distribute(data, dispatcher.target).as_numpy_iterator()
    finally:
        worker.communicate()


def ray_pictures() -> Iterator[np.ndarray]:
    """Ray Data: JPEG files by Pillow."""
    import PIL.Image
    import ray

    ray.data.DataContext.get_current().enable_progress_bars = False
    paths = [path for path, _ in files()]

    def map_row(row: dict[str, Any]) -> dict[str, Any]:
        with PIL.Image.open(paths[row["id"] % len(paths)]) as image:
            image = image.convert("RGB")
        resized = image.resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR)
        return {"x": np.asarray(resized)}

    data = ray.data.range(1000 * len(paths)).map(map_row)
    for batch in data.iter_batches(batch_size=PICTURES, prefetch_batches=4):
        yield batch["x"]


def _address(dispatcher: Any) -> str:
    return dispatcher.target.split("://")[1]


def _distribute(data: Any, target: str) -> Any:
    """Returns the dataset as the service at `target` computes it."""
    import tensorflow as tf

    service = tf.data.experimental.service
    data = data.apply(service.distribute(service.ShardingPolicy.DYNAMIC, target))
    return data.prefetch(4)
