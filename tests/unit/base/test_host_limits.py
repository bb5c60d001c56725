"""Tests the cores and the memory that control groups leave to this process."""

import os

import pytest

from gristmill._base import host_limits

GIB = 1 << 30


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Return a function that writes files of a host with 8 cores and 16 GiB."""
    monkeypatch.setattr(host_limits, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(host_limits, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))

    def write(**files):
        files = {"proc/meminfo": f"MemAvailable: {16 * GIB >> 10} kB\n", **files}
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    write()
    return write


def test_without_groups_machine_and_affinity_count(host):
    assert host_limits.count_cores() == 8
    assert host_limits.available_memory() == 16 * GIB


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("250000 100000", 2.5), ("max 100000", 8), ("1600000 100000", 8), ("", 8)],
)
def test_cpu_quota_of_version_2(host, quota, expected):
    host(
        **{
            "proc/self/cgroup": "0::/pod/container\n",
            "cgroup/pod/cpu.max": f"{quota}\n",
            "cgroup/pod/container/cpu.max": "max 100000\n",
        }
    )
    assert host_limits.count_cores() == expected


@pytest.mark.parametrize(("quota", "expected"), [("150000", 1.5), ("-1", 8)])
def test_cpu_quota_of_version_1(host, quota, expected):
    host(
        **{
            "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/pod\n0::/\n",
            "cgroup/cpu/pod/cpu.cfs_quota_us": f"{quota}\n",
            "cgroup/cpu/pod/cpu.cfs_period_us": "100000\n",
        }
    )
    assert host_limits.count_cores() == expected


def test_memory_of_version_2_counts_cache_as_available(host):
    host(
        **{
            "proc/self/cgroup": "0::/pod\n",
            "cgroup/pod/memory.max": f"{4 * GIB}\n",
            "cgroup/pod/memory.current": f"{3 * GIB}\n",
            "cgroup/pod/memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
        }
    )
    assert host_limits.available_memory() == GIB + GIB // 2


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (2 * GIB, GIB, GIB),
        (2 * GIB, 3 * GIB, 0),  # The limit was lowered.
        ((1 << 63) - 4096, GIB, 16 * GIB),  # No limit.
    ],
)
def test_memory_of_version_1(host, limit, used, expected):
    host(
        **{
            "proc/self/cgroup": "4:memory:/job\n",
            "cgroup/memory/job/memory.limit_in_bytes": f"{limit}\n",
            "cgroup/memory/job/memory.usage_in_bytes": f"{used}\n",
        }
    )
    assert host_limits.available_memory() == expected


def test_group_of_container_is_its_root(host):
    host(
        **{
            "proc/self/cgroup": "0::/../../outside\n",
            "cgroup/cpu.max": "300000 100000\n",
        }
    )
    assert host_limits.count_cores() == 3
