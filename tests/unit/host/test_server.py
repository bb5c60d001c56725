"""The server of a pool, in a thread, and ranks that speak to it by hand."""

import threading

import pytest

from gristmill._host import messages, server
from gristmill._host.address import Address
from gristmill._host.joining import Joining
from gristmill._host.mode import Mode
from gristmill._host.unit_packets import pack_task
from gristmill._pool.unit_task import UnitTask

JOINING = Joining("1", 77, 0, 2, Mode.BROADCAST, 1, 1, 0, frozenset({0}), False, {})


@pytest.fixture
def pool(monkeypatch, tmp_path):
    """Yield the server, and a function that connects to it and sends a message."""
    monkeypatch.setattr(server, "SLOW_S", 0.0)
    monkeypatch.setattr(server, "TICK_S", 0.01)
    address = Address(str(tmp_path / "pool"))
    served = server.Server(address, address.listen(), {})
    connections = []

    def send(*message):
        connections.append(address.connect())
        messages.send(connections[-1], message)
        return connections[-1]

    control = send("join", tuple(JOINING))
    thread = threading.Thread(target=served.run)
    thread.start()
    assert receive(control) == ("load",)
    yield served, send
    for connection in connections:
        connection.close()
    thread.join()
    assert not (tmp_path / "pool").exists()


def receive(connection):
    received = messages.receive(connection)
    return received and received[0]


def test_rank_that_waits_is_told_which_rank_is_slow(pool):
    served, send = pool
    (number,) = [job.number for job in served._jobs.values()]
    lane = send("lane", number, 0, "program", b"")
    for first in range(2):
        task = UnitTask(0, False, first, 1, 0, ())
        messages.send_packet(lane, pack_task(task))
    assert receive(lane) == ("slow", [1], [0])


def test_numbers_of_ranks_differ_between_servers(pool):
    _, send = pool
    assert receive(send("activity", 0, 0)) is None
    assert receive(send("lane", 0, 0, "program", b"")) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": "2"}, "runs Gristmill 1, but rank 1 (process 78) uses 2. Use the"),
        ({"ranks": 3}, "the same ranks, but rank 0 (process 77) passed 2, and rank 1"),
        (
            {"mode": Mode.DEAL},
            "same mode, but rank 0 (process 77) passed broadcast, and",
        ),
        ({"ahead": 9}, "and rank 1 (process 78) passed 9."),
        (
            {"memory_limit": 1 << 20},
            "same memory_limit, but rank 0 (process 77) passed the default, and rank 1",
        ),
        (
            {"parts": {"sampler": "x", "streams": "y"}},
            "rank 0 (process 77) and of rank 1 (process 78) differ in sampler, streams."
            " Make them alike, or pass a name= of its own for each loader",
        ),
        ({"rank": 0}, "but processes 77 and 78 both use it. Pass another rank, or"),
    ],
)
def test_rank_that_disagrees_is_refused_with_both_sides(pool, changes, text):
    _, send = pool
    joining = JOINING._replace(**{"rank": 1, "pid": 78, **changes})
    kind, refusal = receive(send("join", tuple(joining)))
    assert kind == "refused"
    assert text in refusal
