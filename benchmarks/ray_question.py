"""A cluster for the questions about Ray, and the loaders that use it.

The cluster has three nodes on this machine: a head, which runs the consumer, and two
nodes of one CPU. Objects move between nodes over the loopback device. If computing
dominates there is one node, so that consumer and node have a core each, like separate
machines.
"""

import contextlib
import functools
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ray_peers
from harness import Measurement, Settings, seconds_per_batch
from workloads import SEED, Workload, answer

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    RAY_BACKEND_LOG_LEVEL="error",
    RAY_DATA_DISABLE_PROGRESS_BARS="1",
)
ACTORS = 2
STREAMS = 2


@contextlib.contextmanager
def cluster(nodes: int = ACTORS) -> Iterator[Any]:
    """Start the cluster and connect to it; end both afterwards.

    Yields the cluster and the list of its nodes.

    Args:
        nodes: Number of nodes of one CPU, without the head.
    """
    import ray
    from ray.cluster_utils import Cluster

    node = {
        "object_store_memory": 800 << 20,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
    }
    running = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0})
    try:
        added = [running.add_node(**node, num_cpus=1) for _ in range(nodes)]
        path = {"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}}
        ray.init(
            running.address,
            _node_ip_address="127.0.0.1",
            log_to_driver=False,
            runtime_env=path,
        )
        yield running, added
    finally:
        ray.shutdown()
        running.shutdown()


@functools.cache
def _table(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, 256, (64, *shape), np.uint8)


def record(shape: tuple[int, ...], number: int) -> np.ndarray:
    """Make a record of `shape`, uint8, which begins with its number."""
    row = _table(shape)[number % 64].copy()
    row.reshape(-1)[:8].view(np.int64)[0] = number
    return row


def gristmill(work: Workload, *, batches_per_call: int = 1) -> Iterator[Any]:
    """Our actors."""
    import gristmill as grain
    from gristmill.ray import RayWorkers

    class Step(grain.MapTransform):
        def map(self, number: int) -> dict[str, Any]:
            return {"x": work.step(number)}

    return iter(
        grain.load(
            work.source,
            num_epochs=work.epochs,
            shuffle=True,
            seed=SEED,
            transformations=[Step()],
            batch_size=work.batch_size,
            worker_count=STREAMS,
            workers=RayWorkers(ACTORS, batches_per_call=batches_per_call),
        )
    )


LOADERS = {
    "gristmill": gristmill,
    "Ray Data": ray_peers.ray_data,
    "Ray Data, in order": functools.partial(ray_peers.ray_data, preserve_order=True),
    "tf.data service": ray_peers.tf_data_service,
}


def measure(
    load: Callable[[Workload], Iterator[Any]],
    work: Workload,
    checked: range,
    settings: Settings,
) -> Measurement:
    """Return milliseconds per batch, after the actors have started.

    Takes ten times as long as other questions, because an object store may contain a
    second's worth of batches.
    """
    with cluster_for(load):
        answers = {"records": answer(load(work.once(checked))).records}
        gc.collect()
        seconds = seconds_per_batch(load(work), 10 * settings.seconds, warm=32)
    return Measurement(seconds * 1e3, answers)


def cluster_for(load: Callable[..., Any]) -> contextlib.AbstractContextManager[Any]:
    """Return a cluster, if `load` needs one."""
    without_cluster = ray_peers.tf_data_service, ray_peers.tf_pictures
    return contextlib.nullcontext() if load in without_cluster else cluster()
