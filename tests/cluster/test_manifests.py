"""The cluster examples are accepted by Ray and agree with docs/cluster.md."""

import json

import pytest
import yaml

from support.places import ROOT

FOLDER = ROOT / "examples" / "cluster"


def load(name):
    return yaml.safe_load((FOLDER / name).read_text())


@pytest.fixture(scope="module")
def kuberay():
    return load("kuberay.yaml")


def groups(manifest):
    spec = manifest["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def test_ray_reads_node_types_of_kuberay_manifest(kuberay):
    from ray.autoscaler._private.kuberay import autoscaling_config

    kuberay["metadata"].setdefault("namespace", "default")
    found = autoscaling_config._derive_autoscaling_config_from_ray_cr(kuberay)
    assert found["max_workers"] == 16
    assert found["idle_timeout_minutes"] == 2
    loaders = found["available_node_types"]["loaders"]
    assert (loaders["min_workers"], loaders["max_workers"]) == (0, 16)
    assert loaders["resources"]["CPU"] == 16
    assert loaders["resources"]["loader"] == 16
    head = found["available_node_types"][found["head_node_type"]]["resources"]
    assert (head["CPU"], head["GPU"]) == (16, 8)
    assert "loader" not in head


def test_kuberay_pods_meet_operator_requirements(kuberay):
    assert (kuberay["apiVersion"], kuberay["kind"]) == ("ray.io/v1", "RayCluster")
    for group in groups(kuberay):
        assert all(isinstance(text, str) for text in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        # Ray counts limits; Kubernetes schedules by requests.
        limits = container["resources"]["limits"]
        assert container["resources"]["requests"] == limits
        mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        (volume,) = pod["volumes"]
        assert mounted == {volume["name"]: "/dev/shm"}
        # Ray uses 30 % of a machine's memory for objects, unless /dev/shm is smaller.
        memory = int(limits["memory"].removesuffix("Gi"))
        assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) < memory / 2


def test_actor_resource_equals_cpu_count(kuberay):
    (loaders,) = kuberay["spec"]["workerGroupSpecs"]
    # KubeRay passes it to a shell, which removes the outer quotes.
    text = json.loads(loaders["rayStartParams"]["resources"])
    (container,) = loaders["template"]["spec"]["containers"]
    cpus = container["resources"]["limits"]["cpu"]
    assert json.loads(text) == {"loader": int(cpus)}


def test_ray_up_accepts_example():
    from ray.autoscaler._private import util

    config = util.prepare_config(load("ray-up.yaml"))
    config["cluster_synced_files"] = []
    util.validate_config(config)
    loaders = config["available_node_types"]["loaders"]
    assert loaders["resources"]["loader"] == loaders["resources"]["CPU"]
    assert loaders["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}


def test_ray_up_refuses_unknown_field():
    from ray.autoscaler._private import util

    config = util.prepare_config({**load("ray-up.yaml"), "no_such_field": 1})
    with pytest.raises(Exception, match="no_such_field"):
        util.validate_config(config)
