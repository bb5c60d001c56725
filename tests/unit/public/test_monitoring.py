"""Tests of metrics for Prometheus, which have Grain's names and are optional."""

import json
import os
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from faults.scripts import command, environment
from gristmill import monitoring

NAMES = {
    "grain_python_dataset_next_duration_ns",
    "grain_python_dataset_prefetch_buffer_ready_count",
    "grain_python_data_sources_bytes_read",
    "grain_python_dataset_source_read_time_ns",
    "grain_python_data_loader_iterator_get_next",
}


def run(program, *arguments, **environ):
    kept = {k: v for k, v in environment().items() if "PROMETHEUS" not in k}
    done = subprocess.run(
        command(f"monitoring/{program}", *arguments),
        env={**kept, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port():
    import socket

    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        return bound.getsockname()[1]


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(family, name, **labels):
    (found,) = [
        sample.value
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


@pytest.mark.claim("PYGRAIN_PROMETHEUS_PORT is ignored if Grain starts the server")
def test_environment_starts_server_on_given_port():
    port = free_port()
    said = run(
        "scraped",
        port,
        ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="true",
        PYGRAIN_PROMETHEUS_PORT=str(port),
    )
    first, _, page = said.partition("\n")
    assert first == "20"
    found = families(page)
    assert {name for name in found if name.startswith("grain_")} == NAMES
    nexts = found["grain_python_dataset_next_duration_ns"]
    assert value(nexts, f"{nexts.name}_count") == 150
    gets = found["grain_python_data_loader_iterator_get_next"]
    assert value(gets, f"{gets.name}_count") == 20
    read = found["grain_python_data_sources_bytes_read"]
    assert value(read, f"{read.name}_total", source="list") == 300 * 800
    times = found["grain_python_dataset_source_read_time_ns"]
    assert value(times, f"{times.name}_count", source="list") == 300
    ready = found["grain_python_dataset_prefetch_buffer_ready_count"]
    assert value(ready, f"{ready.name}_count") >= 1


@pytest.mark.claim("Every machine that reaches the port can read the metrics")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "0100007F"),  # 127.0.0.1 with its bytes reversed.
        ({"GRISTMILL_PROMETHEUS_HOST": ""}, "0100007F"),
        ({"GRISTMILL_PROMETHEUS_HOST": "127.0.0.3"}, "0300007F"),
        ({"GRISTMILL_PROMETHEUS_HOST": "0.0.0.0"}, "00000000"),
    ],
)
def test_server_listens_on_localhost_by_default(environment, expected):
    port = free_port()
    said = run(
        "listening",
        port,
        ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="true",
        PYGRAIN_PROMETHEUS_PORT=str(port),
        **environment,
    )
    assert said.split() == [expected]


@pytest.mark.parametrize(
    ("arguments", "expected"), [([], "0100007F"), (["0.0.0.0"], "00000000")]
)
def test_started_server_listens_on_given_address(arguments, expected):
    assert run("serves", free_port(), *arguments).split() == [expected]


def test_default_loads_and_records_nothing():
    said = run("by_itself")
    assert json.loads(said) == [False, False]


def test_child_of_serving_process_only_records(tmp_path):
    said = run(
        "by_itself",
        ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="true",
        GRISTMILL_PROMETHEUS_SERVED_BY="1",
        PROMETHEUS_MULTIPROC_DIR=str(tmp_path),
    )
    assert json.loads(said)[0] is True


def test_metrics_folder_is_removed_at_exit():
    said = run(
        "folder_of_metrics",
        ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="true",
        PYGRAIN_PROMETHEUS_PORT=str(free_port()),
    )
    assert "prometheus_multiproc_" in said
    assert not os.path.exists(said.strip())


@pytest.mark.parametrize("order", [("grain", "start"), ("start", "grain")])
def test_import_of_grain_does_not_clash_with_metrics(order):
    said = run("beside_grain", *order)
    nexts = families(said)["grain_python_dataset_next_duration_ns"]
    counts = [
        sample.value for sample in nexts.samples if sample.name.endswith("_count")
    ]
    assert counts == [10.0]


def test_recording_needs_no_server():
    said = run("recording_without_a_server")
    nexts = families(said)["grain_python_dataset_next_duration_ns"]
    assert value(nexts, f"{nexts.name}_count") == 32


def test_port_in_use_starts_no_server():
    said = run("taken_port")
    assert said == "None\n"


def test_port_in_environment_is_checked(monkeypatch):
    monkeypatch.setenv("PYGRAIN_PROMETHEUS_PORT", "http")
    with pytest.raises(ValueError, match="must be a port, from 1 to 65535, got 'http'"):
        monitoring._port()
    monkeypatch.delenv("PYGRAIN_PROMETHEUS_PORT")
    assert monitoring._port() == 9431
