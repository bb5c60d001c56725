"""Kept arrays, errors and lost processes do not change the outputs of ranks."""

import collections
import contextlib
import errno
import gc
import os
import resource
import signal
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

import gristmill
from gristmill import host
from gristmill._base import host_limits
from gristmill._host.address import Address
from gristmill._host.slot_views import PoolMemory
from gristmill._pool.call_metrics import CallMetrics
from gristmill._pool.lanes import Payloads
from support.ranks import (
    new_name,
    new_pool,
    plain,
    server_of,
    share_all,
    take_in_turn,
)
from support.waiting import wait_for


class Rows(gristmill.MapTransform):
    def map(self, number):
        return np.full(5000, number)


class FailAtFive(gristmill.MapTransform):
    def map(self, number):
        if number == 5:
            raise KeyError("five")
        return number


class SetTimeout(Rows):
    """A program that sets a default timeout, as some do before downloads."""

    def __getstate__(self):
        return True

    def __setstate__(self, state):
        socket.setdefaulttimeout(1e-6)


class IsCollected(gristmill.MapTransform):
    def map(self, number):
        return gc.isenabled()


class FileLimit(gristmill.MapTransform):
    def map(self, number):
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class EndProcess:
    """A source that ends each process that unpickles it."""

    def __len__(self):
        return 3

    def __getitem__(self, key):
        return key

    def __reduce__(self):
        return os._exit, (3,)


def load(records=24, step=Rows, batch=2, workers=2, **options):
    return gristmill.DataLoader(
        data_source=range(records),
        sampler=gristmill.SequentialSampler(records),
        operations=[step(), gristmill.Batch(batch)],
        worker_count=workers,
        streams=2,
        **options,
    )


def zygotes_of(name):
    """Return the pid of the process that is both a child and a parent, if any."""
    parents = {}
    for pid in server_of(name):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text()
            parents[pid] = int(stat.rpartition(")")[2].split()[1])
    return {pid for pid in parents.values() if parents.get(pid) in parents}


@pytest.mark.parametrize("mode", ["deal", "broadcast"])
def test_kept_batches_beyond_the_memory_limit_do_not_stop_ranks(mode):
    def make():
        return load(memory_limit=1 << 20)

    shared = share_all(make, 2, mode=mode, ahead=2)
    kept = [[], []]
    for _ in range(6 if mode == "deal" else 12):
        for rank in range(2):
            kept[rank].append(next(shared[rank]))
    shards = [gristmill.ShardOptions(rank, 2) for rank in range(2)]
    for rank, batches in enumerate(kept):
        options = {"shard_options": shards[rank]} if mode == "deal" else {}
        assert [*map(plain, batches)] == [*map(plain, load(workers=0, **options))]
    for iterator in shared:
        iterator.close()


def test_kept_batches_without_memory_raise_arena_full(monkeypatch):
    # The server is a fork of this process, so it finds no memory either.
    monkeypatch.setattr(host_limits, "available_memory", lambda: 0)
    (shared,) = share_all(lambda: load(48, memory_limit=1 << 20), 1)
    kept = []
    with pytest.raises(gristmill.ArenaFull, match="Use smaller batches, or keep fewer"):
        kept.extend(shared)
    assert 0 < len(kept) < 24
    taken = [*map(plain, kept)]
    kept.clear()
    for batch in shared:
        taken.append(plain(batch))
    shared.close()
    # The stream with the error gives up its turn, and repeats the batch later.
    assert sorted(taken) == sorted(map(plain, load(48, workers=0)))


@pytest.mark.parametrize("mode", ["deal", "broadcast"])
def test_error_of_a_step_is_raised_where_it_is_without_share(mode):
    shared = share_all(lambda: load(step=FailAtFive, batch=1), 1, mode=mode)
    (shared,) = shared
    assert [int(next(shared)[0]) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="five"):
        next(shared)
    shared.close()


def test_kept_arrays_outlive_states_workers_iterator_and_pool():
    name = new_name()
    (shared,) = share_all(load, 1, name, "broadcast")
    expected = [plain(batch) for batch in load(workers=0)]
    start, kept = shared.get_state(), []
    for count, workers in ((3, 3), (6, 1), (12, 2)):
        shared.set_state(start)
        kept += [(number, next(shared)) for number in range(count)]
        shared.set_workers(workers)
    shared.close()
    for pid in server_of(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not server_of(name))
    for number, batch in kept:
        assert plain(batch) == expected[number]


def test_pool_that_is_killed_starts_again_and_loses_no_batch():
    name = new_name()
    (shared,) = share_all(load, 1, name)
    kept = [next(shared)]
    for pid in server_of(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    kept += [*shared]
    shared.close()
    assert [*map(plain, kept)] == [*map(plain, load(workers=0))]


def test_worker_that_always_ends_is_named_in_the_error():
    (shared,) = share_all(lambda: load(step=EndWorker, max_restarts=0), 1)
    with pytest.raises(
        gristmill.WorkerDied, match=r"process \d+ of the pool was lost .* signal 40"
    ):
        next(shared)
    shared.close()


class EndWorker(gristmill.MapTransform):
    def map(self, number):
        os.kill(os.getpid(), 40)  # A signal without a name.


def test_pool_whose_program_ends_processes_gives_up(capfd):
    name = new_name()
    loader = gristmill.DataLoader(
        data_source=EndProcess(),
        sampler=gristmill.SequentialSampler(3),
        worker_count=1,
    )
    shared = host.share(loader, name=name, rank=0, ranks=1)
    with pytest.raises(ValueError, match=r"gives up after 3 .* exit code 3"):
        next(shared)
    wait_for(lambda: not server_of(name))
    assert "Traceback" not in capfd.readouterr().err


def test_newer_iterator_continues_while_arrays_of_the_older_are_kept():
    name = new_pool()
    (older,) = share_all(load, 1, name)
    kept = [next(older) for _ in range(4)]
    older.close()
    expected = [*map(plain, load(workers=0))]
    assert take_in_turn(share_all(load, 1, name)) == [expected]
    assert [*map(plain, kept)] == expected[:4]


def test_interrupted_next_loses_no_batch(monkeypatch):
    (shared,) = share_all(load, 1)
    interrupts = collections.Counter()

    def interrupt_twice(kind, name):
        method = getattr(kind, name)

        def call(*arguments):
            result = method(*arguments)
            in_main = threading.current_thread() is threading.main_thread()
            if in_main and interrupts[name] < 2:
                interrupts[name] += 1
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(kind, name, call)

    interrupt_twice(PoolMemory, "view")
    interrupt_twice(Payloads, "add_once")
    interrupt_twice(CallMetrics, "record_call")
    batches = []
    while len(batches) < 12:
        with contextlib.suppress(KeyboardInterrupt):
            batches.append(next(shared))
    assert interrupts.total() == 6
    assert [*map(plain, batches)] == [*map(plain, load(workers=0))]
    shared.close()


def test_default_timeout_of_sockets_does_not_apply():
    (shared,) = share_all(lambda: load(step=SetTimeout), 1)
    socket.setdefaulttimeout(1e-6)
    try:
        taken = [*map(plain, shared)]
    finally:
        socket.setdefaulttimeout(None)
    assert taken == [*map(plain, load(workers=0))]
    shared.close()


def test_server_may_open_more_files_than_workers():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(soft, 500)
    name = new_name()
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        (shared,) = share_all(lambda: load(step=FileLimit), 1, name)
        assert next(shared).tolist() == [few, few]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = {resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in server_of(name)}
    assert limits == {(few, hard), (hard, hard)}
    shared.close()


def test_lane_without_a_descriptor_names_the_limit_of_open_files(monkeypatch):
    (shared,) = share_all(load, 1)
    connect = Address.connect

    def fail_in_lanes(address):
        if threading.current_thread() is threading.main_thread():
            return connect(address)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Address, "connect", fail_in_lanes)
    with pytest.raises(
        gristmill.WorkerDied, match=r"Close files, or raise the limit \(ulimit -n"
    ):
        next(shared)
    shared.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_connection_without_a_descriptor_raises_one_error():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            Address("name").connect()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_workers_collect_garbage():
    (shared,) = share_all(lambda: load(step=IsCollected), 1, new_name())
    assert all(batch.all() for batch in shared)
    shared.close()


def test_loss_of_all_workers_with_their_parent_is_no_restart_of_a_unit():
    name = new_name()
    (shared,) = share_all(lambda: load(max_restarts=0), 1, name)
    kept = [next(shared)]
    killed = set()
    while len(killed) < 2:
        wait_for(lambda: zygotes_of(name) - killed)  # Killed ones stay a while.
        (zygote,) = zygotes_of(name) - killed
        os.kill(zygote, signal.SIGKILL)
        killed.add(zygote)
        kept.append(next(shared))
    kept += [*shared]
    shared.close()
    assert [*map(plain, kept)] == [*map(plain, load(workers=0))]
