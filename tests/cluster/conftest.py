"""Starts a Ray cluster of three nodes on this machine, once per test process."""

import os

import pytest

# Must be set before Ray is imported.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    # Free objects at once: by default Ray counts them for another second.
    RAY_free_objects_batch_size="1",
    # Ray logs pages of warnings about a killed node.
    RAY_BACKEND_LOG_LEVEL="error",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    # By default Ray uses the machine's external address.
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    # With a nice value, actors would starve next to other tests.
    RAY_worker_niceness="0",
    # Detect a lost node faster than on a real network.
    RAY_health_check_period_ms="500",
    RAY_health_check_failure_threshold="3",
)

NODE = {
    "object_store_memory": 128 << 20,
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
}


@pytest.fixture(scope="session")
def cluster():
    """Start a head node without CPUs, which stays alive, and two nodes of two CPUs."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
    made.options = {**NODE, "num_cpus": 2}
    try:
        for _ in range(2):
            made.add_node(**made.options)
        ray.init(made.address, _node_ip_address="127.0.0.1", log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
