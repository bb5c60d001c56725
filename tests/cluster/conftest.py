"""A Ray cluster of three nodes on this machine, for all tests of a test process."""

import os

import pytest

# Before Ray is imported.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    # Else memory that nobody refers to is counted for another second.
    RAY_free_objects_batch_size="1",
    # A killed node's last words are long.
    RAY_BACKEND_LOG_LEVEL="error",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    # Else it talks to the machine's outer address.
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    # Other tests run beside them, and would leave actors no processor.
    RAY_worker_niceness="0",
    # A node that is gone is noticed sooner than on a real network.
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
    """A head without CPUs, which no test kills, and two nodes of two CPUs each."""
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
