"""Ranks share actors, and jobs read one stream that is computed once."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import uuid

import numpy as np
import psutil
import pytest
import ray

import gristmill
from gristmill.errors import WorkerDied
from gristmill.ray import RayWorkers

pytestmark = pytest.mark.usefixtures("cluster")
RECORDS = 320
# Shared by all tests of this module: each begins with the actors of the one before.
ACTORS = "test-sharing"


class Note(gristmill.RandomMapTransform):
    """Append the number of each computed record to a file."""

    def __init__(self, path):
        self.path = str(path)

    def random_map(self, number, rng):
        with open(self.path, "a") as file:
            file.write(f"{number}\n")
        return {"rows": np.full(3000, number), "draw": rng.random(3)}


class Odd(gristmill.FilterTransform):
    def filter(self, element):
        return element["rows"][0] % 2 == 1


@pytest.fixture
def noted(tmp_path):
    path = tmp_path / "computed"
    path.touch()
    return path


@pytest.fixture
def share():
    """Return a name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True, scope="module")
def end():
    """Kill the hub after the last test."""
    yield
    with contextlib.suppress(ValueError):
        ray.kill(hub_of(ACTORS))


def shared(share, **options):
    return RayWorkers(2, name=ACTORS, share=share, **options)


def hub_of(name):
    return ray.get_actor(f"gristmill-{name}", namespace="gristmill")


def loader(noted, *steps, records=RECORDS, batch_size=4, shard=(0, 1), **options):
    return gristmill.DataLoader(
        data_source=range(records),
        sampler=gristmill.IndexSampler(
            records,
            shuffle=True,
            num_epochs=1,
            seed=5,
            shard_options=gristmill.ShardOptions(*shard),
        ),
        operations=[Note(noted), *steps, gristmill.Batch(batch_size)],
        **options,
    )


def bytes_of(elements):
    return [(one["rows"].tobytes(), one["draw"].tobytes()) for one in elements]


def together(*iterators):
    """Take one batch from each iterator in turn; return the bytes of each."""
    taken = [[] for _ in iterators]
    for batches in zip(*iterators, strict=True):
        for one, batch in zip(taken, batches, strict=True):
            one += bytes_of([batch])
    return taken


def computed(noted):
    """Return how often each record was computed."""
    return collections.Counter(noted.read_text().split())


@pytest.mark.parametrize("steps", [(), (Odd(),)], ids=["ranges", "owned streams"])
def test_jobs_share_one_computed_stream(noted, share, steps):
    expected = bytes_of(loader(noted, *steps, streams=2))
    noted.write_text("")
    jobs = [
        iter(loader(noted, *steps, streams=2, workers=shared(share))) for _ in range(3)
    ]
    assert together(*jobs) == [expected] * 3
    assert set(computed(noted).values()) == {1}
    assert len(computed(noted)) == RECORDS


def test_job_behind_its_window_fails_alone(noted, share):
    workers = shared(share, window=8)
    expected = bytes_of(loader(noted))
    fast = iter(loader(noted, workers=workers))
    slow = iter(loader(noted, workers=workers))
    first = bytes_of([next(slow)])
    assert bytes_of(fast) == expected
    with pytest.raises(
        WorkerDied, match=rf"lags too far behind.*{share}.*last 16 units"
    ):
        first += bytes_of(slow)
    assert first == expected[: len(first)]


def test_job_resumed_within_window_reads_kept_batches(noted, share):
    workers = shared(share)
    expected = bytes_of(loader(noted))
    noted.write_text("")
    first, other = (iter(loader(noted, workers=workers)) for _ in range(2))
    head = bytes_of(next(first) for _ in range(20))
    others = bytes_of([next(other)])
    state = first.get_state()
    first.close()
    assert others + bytes_of(other) == expected
    resumed = iter(loader(noted, workers=workers))
    resumed.set_state(state)
    assert head + bytes_of(resumed) == expected
    assert set(computed(noted).values()) == {1}


def test_different_pipeline_of_same_name_is_refused(noted, share):
    made = iter(loader(noted, workers=shared(share)))
    next(made)
    for other, what in (
        ({"batch_size": 8}, "batch_stages"),
        ({"records": 77}, "source"),
        ({"shard": (0, 2)}, "sampler"),
        ({"workers": shared(share, window=3)}, "window"),
    ):
        given = {"workers": shared(share), **other}
        with pytest.raises(ValueError, match=rf"differs from this one in.* {what}"):
            next(iter(loader(noted, **given)))
    with pytest.raises(ValueError, match="got other options"):
        next(iter(loader(noted, workers=shared(share, num_cpus=2))))
    assert len(bytes_of(made)) == RECORDS // 4 - 1


def test_ranks_share_actors(noted):
    workers = RayWorkers(2, name=ACTORS)
    ranks = [iter(loader(noted, shard=(rank, 2), workers=workers)) for rank in (0, 1)]
    here = [bytes_of(loader(noted, shard=(rank, 2))) for rank in (0, 1)]
    # One rank runs far ahead of the other and takes the rest later.
    assert bytes_of(next(ranks[0]) for _ in range(30)) == here[0][:30]
    assert bytes_of(ranks[1]) == here[1]
    assert bytes_of(ranks[0]) == here[0][30:]
    pids = [{worker.pid for worker in rank.report().workers} for rank in ranks]
    assert pids[0] & pids[1]
    assert len(pids[0] | pids[1]) == 2


def test_killed_hub_is_replaced(noted, share):
    expected = bytes_of(loader(noted))
    jobs = [iter(loader(noted, workers=shared(share))) for _ in range(2)]
    head = [bytes_of(next(job) for _ in range(10)) for job in jobs]
    ray.kill(hub_of(ACTORS))
    rest = together(*jobs)
    assert [one + other for one, other in zip(head, rest, strict=True)] == [
        expected
    ] * 2


def test_killed_shared_actor_changes_nothing(noted, share):
    expected = bytes_of(loader(noted))
    jobs = [iter(loader(noted, workers=shared(share))) for _ in range(2)]
    head = [bytes_of(next(job) for _ in range(10)) for job in jobs]
    (worker, *_) = jobs[0].report().workers
    os.kill(worker.pid, signal.SIGKILL)
    rest = together(*jobs)
    assert [one + other for one, other in zip(head, rest, strict=True)] == [
        expected
    ] * 2


class DieAt(gristmill.MapTransform):
    def __init__(self, number):
        self.number = number

    def map(self, element):
        if element["rows"][0] == self.number:
            os._exit(7)
        return element


def test_fatal_record_is_an_error_of_all_jobs(noted, share):
    jobs = [
        iter(loader(noted, DieAt(111), workers=shared(share), max_restarts=1))
        for _ in range(2)
    ]
    for job in jobs:
        with pytest.raises(WorkerDied, match=r"Ray actor \d \(process \d+ on node 127"):
            collections.deque(job, maxlen=0)


def kill_an_actor():
    """Kill one process that Ray names after our actor class, if there is one."""
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [""])[0].startswith("ray::WorkerActor"):
            process.kill()
            return


class HangOnce(gristmill.MapTransform):
    def __init__(self, path):
        self.path = str(path)

    def map(self, element):
        try:
            with open(self.path, "x"):
                pass
        except FileExistsError:
            return element
        signal.pause()


def test_hanging_actor_is_ended_by_waiting_jobs(noted, share, tmp_path, caplog):
    expected = bytes_of(loader(noted))
    jobs = [
        iter(
            loader(
                noted,
                HangOnce(tmp_path / "once"),
                workers=shared(share),
                stall_timeout=3.0,
                stall_action="restart",
                max_restarts=5,
            )
        )
        for _ in range(2)
    ]
    assert together(*jobs) == [expected] * 2
    assert "It waits for Ray actor" in caplog.text


@pytest.mark.soak
@pytest.mark.parametrize("steps", [(), (Odd(),)], ids=["ranges", "owned streams"])
def test_30_killed_actors_and_hubs_change_nothing(noted, share, steps):
    options = {"records": 9600, "streams": 3}
    expected = iter(loader(noted, *steps, **options))
    jobs = [
        iter(loader(noted, *steps, workers=shared(share), max_restarts=99, **options))
        for _ in range(2)
    ]
    killed = 0
    for number, batch in enumerate(expected):
        wanted = bytes_of([batch])
        for job in jobs:
            assert bytes_of([next(job)]) == wanted
        if number % 35 == 34 and killed < 30:
            killed += 1
            if killed % 5:
                kill_an_actor()
            else:
                ray.kill(hub_of(ACTORS))
    assert killed == 30


PROGRAM = """
import sys
sys.path[:0] = {path!r}
import pathlib, ray
ray.init({address!r}, _node_ip_address="127.0.0.1", log_to_driver=False)
from tests.cluster.test_sharing import loader, shared
job = iter(loader({noted!r}, workers=shared({share!r})))
for _ in range(5):
    next(job)
print("five", flush=True)
sys.stdin.read()
"""


def test_killed_first_job_does_not_stall_others(cluster, noted, share):
    program = PROGRAM.format(
        path=sys.path, address=cluster.address, noted=str(noted), share=share
    )
    expected = bytes_of(loader(noted))
    noted.write_text("")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout.readline() == b"five\n"
        hub = hub_of(ACTORS)
        job = iter(loader(noted, workers=shared(share)))
        head = bytes_of(next(job) for _ in range(10))
        first.kill()
        assert head + bytes_of(job) == expected
    assert hub_of(ACTORS)._actor_id == hub._actor_id
    assert set(computed(noted).values()) == {1}


class Unloadable(gristmill.MapTransform):
    def __reduce__(self):
        return os.getenv, ("NO", 1, 2)

    def map(self, element):
        return element


def test_unpicklable_pipeline_fails_only_its_rank(noted):
    workers = RayWorkers(2, name=ACTORS)
    bad = iter(loader(noted, Unloadable(), workers=workers))
    good = iter(loader(noted, workers=workers))
    next(good)
    with pytest.raises(WorkerDied, match=r"cannot load the pipeline(?s:.*)TypeError"):
        next(bad)
    assert len(bytes_of(good)) == RECORDS // 4 - 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ""}, "name must be a str that is not empty, got ''"),
        ({"share": 3}, "share must be a str that is not empty, got 3"),
        ({"share": "one", "window": 0}, "window must be at least 1, got 0"),
        ({"window": 5}, "window=5 needs share, .*Pass share="),
    ],
)
def test_names_and_windows_are_checked(given, said):
    with pytest.raises((TypeError, ValueError), match=said):
        RayWorkers(1, **given)


def test_repr_shows_share_and_window():
    workers = RayWorkers(3, share="one", window=5)
    assert "share='one', window=5" in repr(workers)
    assert repr(workers.resized(3)) == repr(workers)
