"""Workers on a Ray cluster produce the same bytes as one machine, despite losses."""

import contextlib
import gc
import os
import subprocess
import sys
import threading

import numpy as np
import psutil
import pytest
import ray
from ray._private.internal_api import node_stats

import gristmill
from gristmill._ray import actor_pool
from gristmill.errors import WorkerDied
from gristmill.ray import RayWorkers

pytestmark = pytest.mark.usefixtures("cluster")
RECORDS = 600


class Draw(gristmill.RandomMapTransform):
    def random_map(self, number, rng):
        return {"rows": np.full(3000, number), "draw": rng.random(3)}


class Odd(gristmill.FilterTransform):
    def filter(self, element):
        return element["rows"][0] % 2 == 1


class DieAt(gristmill.MapTransform):
    """End the process that gets a given number."""

    def __init__(self, number):
        self.number = number

    def map(self, element):
        if element["rows"][0] == self.number:
            os._exit(7)
        return element


class Refuse(gristmill.MapTransform):
    def map(self, element):
        if element["rows"][0] % 7 == 0:
            raise ValueError("a multiple of 7")
        return element


OPERATIONS = {
    "bad records": [Draw(), Refuse(), gristmill.Batch(8)],
    "batches": [Draw(), gristmill.Batch(8)],
    "elements": [Draw()],
    "owned streams": [Draw(), Odd(), gristmill.Batch(4)],
}


def loader(operations, num_epochs=1, **options):
    sampler = gristmill.IndexSampler(
        RECORDS, shuffle=True, num_epochs=num_epochs, seed=5
    )
    return gristmill.DataLoader(
        data_source=range(RECORDS), sampler=sampler, operations=operations, **options
    )


def bytes_of(elements):
    return [(one["rows"].tobytes(), one["draw"].tobytes()) for one in elements]


def actor_processes():
    """Return the processes of live actors, which Ray names after their class."""
    named = [
        one for one in psutil.process_iter(["name", "cmdline"]) if one.info["cmdline"]
    ]
    return [
        one for one in named if one.info["cmdline"][0].startswith("ray::WorkerActor")
    ]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("batches", {}),
        ("batches", {"streams": 3}),
        ("elements", {"streams": 3}),
        ("owned streams", {"streams": 3}),
        ("bad records", {"streams": 2, "on_error": "skip"}),
    ],
)
def test_actors_match_single_process(kind, options):
    here = loader(OPERATIONS[kind], **options)
    workers = RayWorkers(2, batches_per_call=options.get("streams", 1))
    there = loader(OPERATIONS[kind], workers=workers, **options)
    assert bytes_of(there) == bytes_of(here)


@pytest.mark.parametrize(
    "kind", ["batches", pytest.param("owned streams", marks=pytest.mark.soak)]
)
def test_states_move_between_cluster_and_one_machine(kind):
    def make(**options):
        return iter(loader(OPERATIONS[kind], streams=3, **options))

    there, here = make(workers=RayWorkers(2, batches_per_call=4)), make()
    for _ in range(20):
        next(there), next(here)
    state = there.get_state()
    assert state == here.get_state()
    rest = bytes_of(here)
    assert bytes_of(there) == rest
    back = make(workers=RayWorkers(1))
    back.set_state(state)
    processes = make(worker_count=2)
    processes.set_state(state)
    assert bytes_of(back) == bytes_of(processes) == rest


def test_dataset_chain_runs_on_actors():
    def chain(**options):
        ds = gristmill.MapDataset.range(RECORDS).shuffle(seed=1).seed(2)
        ds = ds.random_map(lambda number, rng: number + rng.random())
        ds = ds.to_iter_dataset().filter(lambda number: number % 3 > 1).batch(7)
        processes = gristmill.MultiprocessingOptions(num_workers=2)
        return ds.mp_prefetch(processes, **options)

    expected = [batch.tobytes() for batch in chain()]
    workers = RayWorkers(2, batches_per_call=3)
    assert [batch.tobytes() for batch in chain(workers=workers)] == expected


def test_batches_are_writable_and_outlive_their_iterator():
    iterator = iter(loader([Draw(), gristmill.Batch(64)], workers=RayWorkers(1)))
    batch = next(iterator)
    rows = batch["rows"].copy()
    del iterator
    gc.collect()
    np.testing.assert_array_equal(batch["rows"], rows)
    batch["rows"][:] = 0
    assert not batch["rows"].any()


def test_step_error_on_actor_is_raised_here():
    iterator = iter(loader([Draw(), Refuse()], workers=RayWorkers(1)))
    with pytest.raises(ValueError, match=r"^a multiple of 7"):
        for _ in range(RECORDS):
            next(iterator)


def under_losses(kind, lose, losses, epochs, actors):
    """Return whether the output stays the same despite `losses` calls of `lose`."""
    expected = loader(OPERATIONS[kind], num_epochs=epochs, streams=4)
    there = loader(
        OPERATIONS[kind],
        num_epochs=epochs,
        streams=4,
        workers=RayWorkers(actors),
        max_restarts=100,
    )
    every = max(1, epochs * 50 // losses)
    lost = 0
    for number, (one, other) in enumerate(zip(there, expected, strict=True)):
        assert bytes_of([one]) == bytes_of([other])
        if number % every == every // 2 and lost < losses:
            lose()
            lost += 1
    return lost == losses


def arenas():
    """Return the number of open descriptors of Gristmill's shared memory."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:grist")
    return found


def kill_an_actor():
    for process in actor_processes()[:1]:
        process.kill()


@pytest.mark.parametrize(
    "kind", ["batches", pytest.param("owned streams", marks=pytest.mark.soak)]
)
def test_killed_actors_change_nothing(kind):
    assert under_losses(kind, kill_an_actor, 3, epochs=1, actors=2)


def test_lost_node_changes_nothing_and_new_node_is_used(cluster):
    def endless(**options):
        sampler = gristmill.IndexSampler(RECORDS, shuffle=True, seed=5)
        operations = OPERATIONS["batches"]
        return iter(
            gristmill.DataLoader(
                data_source=range(RECORDS),
                sampler=sampler,
                operations=operations,
                streams=2,
                **options,
            )
        )

    there, here = endless(workers=RayWorkers(4), max_restarts=0), endless()
    processes = actor_processes

    def go_on_until(reached):
        while not reached():
            assert bytes_of([next(there)]) == bytes_of([next(here)])

    go_on_until(lambda: len(processes()) == 4)
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    go_on_until(lambda: len(processes()) == 2)
    cluster.add_node(**cluster.options)
    go_on_until(lambda: len(processes()) == 4)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["batches", "owned streams"])
def test_50_killed_actors_change_nothing(kind):
    assert under_losses(kind, kill_an_actor, 50, epochs=20, actors=2)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["batches", "owned streams"])
def test_20_replaced_nodes_change_nothing(cluster, kind):
    def replace_a_node():
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        cluster.add_node(**cluster.options)

    assert under_losses(kind, replace_a_node, 20, epochs=20, actors=4)


DRIVER = """
import sys
import ray, gristmill
from gristmill.ray import RayWorkers

ray.init(sys.argv[1], _node_ip_address="127.0.0.1", log_to_driver=False)
iterator = iter(gristmill.load(range(99), workers=RayWorkers(2)))
next(iterator)
print("begun", flush=True)
sys.stdin.read()
"""


def test_killed_driver_leaves_no_actor(cluster):
    program = [sys.executable, "-c", DRIVER, cluster.address]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(program, **pipes) as driver:
        assert driver.stdout.readline() == b"begun\n"
        actors = actor_processes()
        driver.kill()
    assert actors
    _, alive = psutil.wait_procs(actors, timeout=20)
    assert not alive


class Megabyte(gristmill.MapTransform):
    def map(self, number):
        return np.full(1 << 20, number % 256, np.uint8)


def stored():
    """Return the bytes in all object stores and the total bytes ever spilled."""
    replies = [
        node_stats(node["NodeManagerAddress"], node["NodeManagerPort"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    stats = [reply.store_stats for reply in replies]
    used = sum(one.object_store_bytes_used for one in stats)
    return used, sum(one.spilled_bytes_total for one in stats)


def test_slow_consumer_bounds_object_store_use():
    gc.collect()
    before, _ = stored()
    made = iter(
        gristmill.load(
            range(64),
            num_epochs=1,
            transformations=[Megabyte()],
            batch_size=4,
            worker_count=8,
            workers=RayWorkers(2, ahead=4),
        )
    )
    # Two actors that run four batches ahead, and the current batch; each may be stored
    # on two nodes.
    most = 2 * (2 * 4 + 1) * (4 << 20)
    largest = 0
    for _ in made:
        used, spilled = stored()
        assert spilled == 0
        largest = max(largest, used - before)
    assert 4 << 20 <= largest <= most


def test_actor_count_changes_during_an_epoch():
    expected = bytes_of(loader(OPERATIONS["owned streams"], streams=4))
    iterator = iter(
        loader(OPERATIONS["owned streams"], streams=4, workers=RayWorkers(1))
    )
    found = []
    for number, element in enumerate(iterator):
        found += bytes_of([element])
        if number in (10, 40):
            iterator.set_workers(4 if number == 10 else 2)
    assert found == expected


def test_fatal_record_error_names_actor_and_node():
    ends = loader([Draw(), DieAt(11), gristmill.Batch(4)], workers=RayWorkers(2))
    with pytest.raises(WorkerDied) as raised:
        list(ends)
    text = str(raised.value)
    assert "Ray actor" in text
    assert "on node 127.0.0.1" in text
    assert "of its stream 0" in text


class HangOnce(gristmill.MapTransform):
    """Never return from the first call made in any process."""

    def __init__(self, path):
        self.path = path

    def map(self, element):
        with contextlib.suppress(FileExistsError):
            open(self.path, "x").close()
            threading.Event().wait()
        return element


def test_hanging_actor_is_named_and_replaced(tmp_path, caplog):
    hangs = loader(
        [Draw(), HangOnce(tmp_path / "once"), gristmill.Batch(8)],
        workers=RayWorkers(2),
        stall_timeout=3.0,
        stall_action="restart",
    )
    assert bytes_of(hangs) == bytes_of(loader(OPERATIONS["batches"]))
    assert "It waits for Ray actor" in caplog.text


def test_unloadable_program_error_gives_the_reason():
    class Unloadable:
        def __reduce__(self):
            return _refuse_to_load, ()

        def map(self, element):
            return element

    there = loader([gristmill.MapOperation(Unloadable().map)], workers=RayWorkers(2))
    with pytest.raises(WorkerDied, match="this cannot be loaded"):
        next(iter(there))


def _refuse_to_load():
    raise RuntimeError("this cannot be loaded")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"actors": 0}, ValueError, "actors must be at least 1, got 0"),
        ({"ahead": 1}, ValueError, "ahead must be at least 2, got 1"),
        ({"batches_per_call": 0}, ValueError, "batches_per_call must be at least 1"),
        ({"batches_per_call": 1.5}, TypeError, "batches_per_call"),
        (
            {"max_restarts": 3},
            TypeError,
            "does not take max_restarts, .* replaces lost",
        ),
    ],
)
def test_invalid_ray_workers_are_refused(given, error, said):
    with pytest.raises(error, match=said):
        RayWorkers(**given)


def test_missing_ray_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'gristmill\[ray\]'"):
        RayWorkers(2)


class EndAtLoad(gristmill.MapTransform):
    """End every process that loads it, except the one that made it."""

    def __setstate__(self, state):
        os._exit(9)

    def __getstate__(self):
        return {"anything": 1}

    def map(self, element):
        return element


def test_actors_that_always_die_on_start_are_an_error(monkeypatch):
    monkeypatch.setattr(actor_pool, "MAX_ENDED_STARTS", 2)
    there = loader([EndAtLoad()], workers=RayWorkers(1))
    with pytest.raises(WorkerDied, match="Ray actors cannot start"):
        next(iter(there))


def test_dropped_iterator_leaves_no_actors_or_descriptors():
    # Actors import this module and cannot import `support`.
    from support.waiting import started_since

    gc.collect()
    before = set(threading.enumerate())
    gc.collect()
    kept = arenas()  # Errors of other tests may keep some open.
    iterator = iter(loader(OPERATIONS["batches"], workers=RayWorkers(2)))
    batch = next(iterator)
    threads = started_since(before)
    del iterator
    gc.collect()
    for thread in threads:
        thread.join(20)
    assert not started_since(before)
    del batch
    gc.collect()  # Frees the exceptions of futures that the threads waited for.
    assert arenas() <= kept
    _, alive = psutil.wait_procs(actor_processes(), timeout=20)
    assert not alive
