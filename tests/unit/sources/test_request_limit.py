"""Tests of the limit of parallel requests, with stores whose optimum is known."""

import heapq

import pytest

from gristmill.sources._request_limit import PAUSE_ROUNDS, RequestLimit


class Store:
    """A store in simulated time. `flow` decides how many requests are pending.

    It answers in order, after `latency_s` and at `bytes_per_s`. If more than
    `capacity` requests are pending, the newest fails.
    """

    def __init__(self, most=1000, latency_s=0.02, bytes_per_s=1e12, capacity=10**9):
        self.now = 0.0
        self.flow = RequestLimit(most, clock=lambda: self.now)
        self.latency_s = latency_s
        self.bytes_per_s = bytes_per_s
        self.capacity = capacity
        self.free_at = 0.0
        self.answers = []
        self.limits = []
        self.failures = 0
        self.number = 0

    def run(self, requests, size=71_000, waiting=True):
        """Make this many requests as fast as allowed, and return bytes per second."""
        began, left, done = self.now, requests, 0
        while left or self.answers:
            while left and self.flow.in_flight < self.flow.limit:
                left -= 1
                self.ask(size)
            at, _, begun, nbytes = heapq.heappop(self.answers)
            self.now = max(self.now, at)
            failed = nbytes == 0
            self.failures += failed
            self.flow.end(
                begun, nbytes, failed=failed, has_waiting=waiting and left > 0
            )
            self.limits.append(self.flow.limit)
            left += failed
            done += nbytes
        return done / (self.now - began)

    def ask(self, size):
        begun = self.flow.begin()
        if self.flow.in_flight > self.capacity:
            size = 0
        self.free_at = max(self.free_at, self.now) + size / self.bytes_per_s
        at = max(self.now + self.latency_s, self.free_at)
        self.number += 1
        heapq.heappush(self.answers, (at, self.number, begun, size))


@pytest.mark.parametrize("latency_s", [0.001, 0.02, 0.2])
@pytest.mark.parametrize("bytes_per_s", [20e6, 200e6, 2e9])
def test_rate_approaches_optimum_of_store(latency_s, bytes_per_s):
    store = Store(latency_s=latency_s, bytes_per_s=bytes_per_s)
    store.run(20_000)
    best = min(bytes_per_s, 1000 * 71_000 / latency_s)
    assert store.run(20_000) >= 0.9 * best


def test_limit_stops_growing_at_full_bandwidth():
    store = Store(latency_s=0.02, bytes_per_s=200e6)
    store.run(20_000)
    needed = 200e6 / 71_000 * 0.02  # 56 requests fill the line.
    limits = store.limits[10_000:]
    assert max(limits) <= 3 * needed
    assert sorted(limits)[len(limits) // 2] <= 2 * needed


def test_limit_never_exceeds_maximum():
    store = Store(most=40)
    store.run(5_000)
    assert max(store.limits) == 40
    assert Store(most=3).flow.limit == 3


def test_failure_halves_limit_once_per_round():
    store = Store()
    begun = [store.flow.begin() for _ in range(16)]
    store.flow.end(begun[0], 0, failed=True, has_waiting=True)
    assert store.flow.limit == 8
    for ticket in begun[1:]:
        store.flow.end(ticket, 0, failed=True, has_waiting=True)
    assert store.flow.limit == 8
    store.flow.end(store.flow.begin(), 0, failed=True, has_waiting=True)
    assert store.flow.limit == 4
    for _ in range(10):
        store.flow.end(store.flow.begin(), 0, failed=True, has_waiting=True)
    assert store.flow.limit == 1


def test_limit_stays_below_capacity_most_of_the_time():
    store = Store(capacity=100)
    store.run(5_000)
    store.failures = 0
    rate = store.run(50_000)
    assert rate >= 0.75 * 100 * 71_000 / 0.02
    assert store.failures < 0.02 * 50_000


def test_limit_grows_after_store_becomes_faster():
    store = Store(bytes_per_s=50e6)
    store.run(10_000)
    store.bytes_per_s = 1e9
    store.run(60 * PAUSE_ROUNDS * 12)
    assert store.run(20_000) >= 0.9 * 1e9


def test_limit_stays_if_no_request_waits():
    store = Store()
    store.run(5_000, waiting=False)
    assert store.flow.limit == 16
