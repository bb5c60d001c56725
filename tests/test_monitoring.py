"""Metrics for Prometheus: Grain's names, recorded only where that is asked for."""

import json
import os
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gristmill import monitoring

NAMES = {
    "grain_python_dataset_next_duration_ns",
    "grain_python_dataset_prefetch_buffer_ready_count",
    "grain_python_data_sources_bytes_read",
    "grain_python_dataset_source_read_time_ns",
    "grain_python_data_loader_iterator_get_next",
}
# Uses datasets and a loader with two workers, then prints what a scraper would get.
PROGRAM = """
import json, socket, urllib.request
import numpy as np
import gristmill as grain
from gristmill import monitoring

ds = grain.MapDataset.source([np.zeros(100)] * 300).shuffle(1).map(lambda x: x + 1)
list(ds.to_iter_dataset().batch(2))
loader = grain.load(list(range(40)), num_epochs=1, batch_size=2, worker_count=2)
print(len(list(loader)))
"""


def run(program, **environment):
    kept = {k: v for k, v in os.environ.items() if "PROMETHEUS" not in k}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**kept, **environment},
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


def scraped(port):
    return PROGRAM + (
        f"page = urllib.request.urlopen('http://localhost:{port}/metrics').read()\n"
        "print(page.decode())\n"
    )


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(family, name, **labels):
    (found,) = [
        sample.value
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


@pytest.mark.claim(
    "PYGRAIN_PROMETHEUS_PORT is ignored where the server starts by itself"
)
def test_the_environment_starts_a_server_on_its_port():
    port = free_port()
    said = run(
        scraped(port),
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


def listening(port):
    """Print the addresses on which somebody listens on a port, as the kernel has it."""
    return (
        "import gristmill\n"
        "for line in open('/proc/net/tcp').readlines()[1:]:\n"
        "    _, local, _, state, *_ = line.split()\n"
        f"    if state == '0A' and local.endswith(':{port:04X}'):\n"
        "        print(local.partition(':')[0])\n"
    )


@pytest.mark.claim("metrics are served to every machine that reaches the port")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "0100007F"),  # 127.0.0.1, of which the last byte comes first.
        ({"GRISTMILL_PROMETHEUS_HOST": ""}, "0100007F"),
        ({"GRISTMILL_PROMETHEUS_HOST": "127.0.0.3"}, "0300007F"),
        ({"GRISTMILL_PROMETHEUS_HOST": "0.0.0.0"}, "00000000"),
    ],
)
def test_only_this_machine_is_served_unless_told_otherwise(environment, expected):
    port = free_port()
    said = run(
        listening(port),
        ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="true",
        PYGRAIN_PROMETHEUS_PORT=str(port),
        **environment,
    )
    assert said.split() == [expected]


@pytest.mark.parametrize(
    ("arguments", "expected"), [("", "0100007F"), (", '0.0.0.0'", "00000000")]
)
def test_a_server_that_is_started_listens_where_it_is_told(arguments, expected):
    port = free_port()
    serve = f"from gristmill import monitoring; monitoring.serve({port}{arguments})\n"
    assert run(serve + listening(port)).split() == [expected]


def test_nothing_is_loaded_or_recorded_by_itself():
    said = run(
        "import sys, json, gristmill; from gristmill import monitoring;"
        "print(json.dumps([monitoring.is_on(), 'prometheus_client' in sys.modules]))"
    )
    assert json.loads(said) == [False, False]


def test_a_process_of_one_that_serves_only_records(tmp_path):
    said = run(
        "import json, gristmill; from gristmill import monitoring;"
        "print(json.dumps(monitoring.is_on()))",
        ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="true",
        GRISTMILL_PROMETHEUS_SERVED_BY="1",
        PROMETHEUS_MULTIPROC_DIR=str(tmp_path),
    )
    assert json.loads(said) is True


def test_the_folder_of_metrics_goes_with_the_process():
    said = run(
        "import os, gristmill; print(os.environ['PROMETHEUS_MULTIPROC_DIR'])",
        ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="true",
        PYGRAIN_PROMETHEUS_PORT=str(free_port()),
    )
    assert "prometheus_multiproc_" in said
    assert not os.path.exists(said.strip())


def test_recording_needs_no_server():
    said = run(
        "import gristmill as grain, prometheus_client\n"
        "from gristmill import monitoring\n"
        "monitoring.start()\n"
        "monitoring.start()\n"
        "list(grain.MapDataset.range(64).to_iter_dataset().batch(2))\n"
        "print(prometheus_client.generate_latest().decode())"
    )
    nexts = families(said)["grain_python_dataset_next_duration_ns"]
    assert value(nexts, f"{nexts.name}_count") == 32


def test_a_port_that_is_taken_is_left_to_its_owner():
    said = run(
        "import socket\n"
        "from gristmill import monitoring\n"
        "bound = socket.socket(); bound.bind(('0.0.0.0', 0)); bound.listen()\n"
        "print(monitoring.serve(bound.getsockname()[1]))"
    )
    assert said == "None\n"


def test_a_port_in_the_environment_is_checked(monkeypatch):
    monkeypatch.setenv("PYGRAIN_PROMETHEUS_PORT", "http")
    with pytest.raises(ValueError, match="must be a port, from 1 to 65535, got 'http'"):
        monitoring._port()
    monkeypatch.delenv("PYGRAIN_PROMETHEUS_PORT")
    assert monitoring._port() == 9431
