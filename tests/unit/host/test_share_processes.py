"""Ranks in other processes: stopped ones, forks, other users and other networks."""

import ctypes
import gc
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import gristmill
from gristmill import host
from gristmill._host import messages, server
from gristmill._host.address import Address
from gristmill._workers.processes import fork
from support.ranks import (
    RankProcess,
    close_all,
    new_name,
    new_pool,
    plain,
    server_of,
    share_all,
    take_in_turn,
)
from support.waiting import wait_for

CLONE_NEWNET = 0x40000000
NOBODY = 65534

is_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")


class Rows(gristmill.MapTransform):
    def map(self, number):
        return np.full(5000, number)


def load(records=24, workers=2, **options):
    return gristmill.DataLoader(
        data_source=range(records),
        sampler=gristmill.SequentialSampler(records),
        operations=[Rows(), gristmill.Batch(2)],
        worker_count=workers,
        streams=2,
        **options,
    )


EXPECTED = [plain(batch) for batch in load(workers=0)]


def stop(pid):
    """Stop a process, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")


def test_stopped_rank_is_named_when_the_window_is_full(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "gristmill")
    monkeypatch.setattr(server, "SLOW_S", 0.05)
    monkeypatch.setattr(server, "TICK_S", 0.01)
    name = new_pool()

    def share(rank):
        return host.share(
            load(), name=name, rank=rank, ranks=2, mode="broadcast", ahead=2
        )

    iterator, other = share(0), RankProcess(lambda: share(1))
    thread = threading.Thread(target=lambda: taken.extend(map(plain, iterator)))
    taken, begin = [plain(next(iterator))], other.take(1)
    stop(other.pid)
    caplog.clear()
    thread.start()
    wait_for(lambda: "has not taken its outputs: 1. At most ahead=2" in caplog.text)
    # Those that are kept for the stopped rank, besides those that it had requested.
    assert 3 <= len(taken) < len(EXPECTED)
    os.kill(other.pid, signal.SIGCONT)
    assert begin + other.take() == EXPECTED
    thread.join()
    assert taken == EXPECTED
    iterator.close()
    other.end()


def test_stopped_pool_continues_and_loses_no_batch():
    name = new_name()
    first, second = share_all(load, 2, name, mode="broadcast", ahead=100)
    taken = [plain(next(first)), plain(next(first))]
    next(second)
    processes = server_of(name)
    assert len(processes) == 4
    for pid in processes:
        stop(pid)
    second.close()
    thread = threading.Thread(target=lambda: taken.extend(map(plain, first)))
    thread.start()
    for pid in processes:
        os.kill(pid, signal.SIGCONT)
    thread.join()
    assert taken == EXPECTED
    first.close()


@pytest.mark.parametrize("mode", ["deal", "broadcast"])
def test_fork_reads_its_views_and_rank_goes_on(mode):
    (iterator,) = share_all(load, 1, mode=mode)
    kept, box = [next(iterator) for _ in range(4)], [iterator]
    (wait, go_on), (ready, is_ready) = os.pipe(), os.pipe()

    def run():
        # The fork drops its copies of the iterator and of an array.
        box.clear()
        kept.pop(0)
        gc.collect()
        os.close(go_on)
        os.write(is_ready, b"1")
        os.read(wait, 1)
        assert [*map(plain, kept)] == EXPECTED[1:4]

    del iterator
    pid, pidfd = fork(run)
    os.close(pidfd)
    os.read(ready, 1)
    del kept[1:]
    assert [plain(batch) for batch in box[0]] == EXPECTED[4:]
    assert plain(kept[0]) == EXPECTED[0]
    os.close(go_on)
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (wait, ready, is_ready):
        os.close(fd)
    box[0].close()


def has_network_namespaces():
    unshare = shutil.which("unshare")
    return (
        unshare and not subprocess.run([unshare, "-n", "true"], check=False).returncode
    )


@pytest.mark.skipif(not has_network_namespaces(), reason="unshare -n is not permitted")
def test_path_socket_joins_ranks_of_other_network_namespaces(tmp_path):
    path, abstract = new_name(tmp_path), new_name()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
        stale.bind(path)

    def share_in_other_namespace():
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        assert Address(abstract).connect() is None
        return host.share(load(), name=path, rank=1, ranks=2)

    first = host.share(load(), name=path, rank=0, ranks=2)
    begin = [plain(next(first))]
    with Address(abstract).listen():
        second = RankProcess(share_in_other_namespace)
        taken = second.take()
    shards = [gristmill.ShardOptions(rank, 2) for rank in range(2)]
    expected = [
        [plain(batch) for batch in load(workers=0, shard_options=shard)]
        for shard in shards
    ]
    assert taken == expected[1]
    assert begin + take_in_turn([first])[0] == expected[0]
    second.end()
    first.close()


@is_root
def test_rank_refuses_pool_of_another_user():
    name = new_name()
    address = Address(name)
    ready, is_ready = os.pipe()
    wait, go_on = os.pipe()

    def listen():
        os.close(go_on)
        become_nobody()
        with address.listen():
            os.write(is_ready, b"1")
            os.read(wait, 1)

    pid, pidfd = fork(listen)
    os.read(ready, 1)
    with pytest.raises(
        PermissionError, match=r"must belong to user 0, who .* belongs to user 65534"
    ):
        next(host.share(load(), name=name, rank=0, ranks=1))
    os.close(go_on)
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (ready, is_ready, wait, pidfd):
        os.close(fd)


@is_root
def test_pool_refuses_rank_of_another_user():
    name = new_pool()
    address = Address(name)
    (iterator,) = share_all(load, 1, name)
    taken = [plain(next(iterator))]

    def join():
        become_nobody()
        with pytest.raises(PermissionError, match="must belong to user 65534, who"):
            address.connect()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(address._address)
            assert messages.receive(connection) is None

    pid, pidfd = fork(join)
    os.close(pidfd)
    assert os.waitpid(pid, 0)[1] == 0
    assert taken + take_in_turn([iterator])[0] == EXPECTED
    iterator.close()


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def test_ranks_of_slurm_share_a_pool_of_its_name(monkeypatch):
    step = new_name()
    for name in [*os.environ]:
        if name in ("RANK", "WORLD_SIZE") or name.startswith(("SLURM_", "OMPI_")):
            monkeypatch.delenv(name)
    variables = {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": step}
    shared = []
    for rank in range(2):
        for name, value in (variables | {"SLURM_PROCID": str(rank)}).items():
            monkeypatch.setenv(name, value)
        shared.append(host.share(load()))
    taken = take_in_turn(shared)
    assert taken == [
        [plain(batch) for batch in load(workers=0, shard_options=shard)]
        for shard in (gristmill.ShardOptions(0, 2), gristmill.ShardOptions(1, 2))
    ]
    assert len(server_of(f"slurm 7.{step}")) == 4
    close_all(shared)
