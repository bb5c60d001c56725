"""Times and counts of the nodes of one chain, in all threads and worker processes."""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
import time
from typing import Any, NamedTuple

from gristmill import batching
from gristmill._base.sizes import size_of
from gristmill._dataset.model.names import node_line
from gristmill._engine.stage_times import sleeps

# After a call that took less, the next one counts as computing, not waiting, because
# a read of the processor time would take longer than the call.
ASK_CPU_NS = 20_000
# Calls of nodes of these kinds may suddenly take long.
WAITING = ("read", "prefetch", "transport")
# Distinguishes processes of several machines that have the same number.  Each import
# draws another value; forks share the value but have other numbers.
IMPORTED = os.urandom(8)


@dataclasses.dataclass(slots=True)
class Numbers:
    """The counts and times of one node; its own time excludes that of its parents.

    Attributes:
        elements: The number of elements that the node made.
        calls: The number of calls that made them.
        direct_ns: Its own time while the consumer of the chain waited.
        background_ns: Its own time in other threads and processes.
        cpu_ns: Its own processor time, in all threads.
        direct_cpu_ns: Its own processor time while the consumer of the chain waited.
        least_ns: Its least own time for an element; most_ns: the most.
        sized: The number of elements whose size was taken; bytes: their size.
        begun: The number of calls that began work of a thread or a worker process.
    """

    elements: int = 0
    calls: int = 0
    direct_ns: int = 0
    background_ns: int = 0
    cpu_ns: int = 0
    direct_cpu_ns: int = 0
    least_ns: int = 0
    most_ns: int = 0
    sized: int = 0
    bytes: int = 0
    begun: int = 0

    def add_call(self, own_ns: int, cpu_ns: int, elements: int, direct: bool) -> None:
        """Add a call."""
        self.calls += 1
        self.cpu_ns += cpu_ns
        if direct:
            self.direct_ns += own_ns
            self.direct_cpu_ns += cpu_ns
        else:
            self.background_ns += own_ns
        if elements:
            each = max(own_ns // elements, 0)
            self._update_extremes(each, each)
            self.elements += elements

    def add_worker(self, sent: Numbers) -> None:
        """Add the numbers of a worker, all of which are in the background."""
        if sent.elements:
            self._update_extremes(sent.least_ns, sent.most_ns)
        self.background_ns += sent.direct_ns + sent.background_ns
        for name in ("elements", "calls", "cpu_ns", "sized", "bytes", "begun"):
            setattr(self, name, getattr(self, name) + getattr(sent, name))

    def _update_extremes(self, least_ns: int, most_ns: int) -> None:
        self.least_ns = min(self.least_ns, least_ns) if self.elements else least_ns
        self.most_ns = max(self.most_ns, most_ns)

    @property
    def direct(self) -> int:
        """The node's own time while the consumer waited, in ns."""
        return max(self.direct_ns, 0)

    @property
    def background(self) -> int:
        """The node's own time in other threads and processes, in ns."""
        return max(self.background_ns, 0)

    @property
    def total_ns(self) -> int:
        """The node's own time in all threads and processes, in ns."""
        return self.direct + self.background

    @property
    def computes(self) -> float:
        """The part of its own time in which the node computed, not waited.

        Other threads also wait for their turn, so the time while the consumer waited
        counts, if there is any.
        """
        whole, cpu = self.direct_ns, self.direct_cpu_ns
        if whole <= 0:
            whole, cpu = self.background_ns, self.cpu_ns
        return min(max(cpu / whole, 0.0), 1.0) if whole > 0 else 1.0

    @property
    def bytes_each(self) -> float:
        """The mean size of an element, in bytes."""
        return self.bytes / self.sized if self.sized else 0.0


@dataclasses.dataclass(slots=True)
class Meter:
    """The measurement of one node.

    Attributes:
        number: The node's number, depth first; the last node of the chain is 0.
        inputs: The numbers of its parents.
        spec: The spec of its first element, or None before that.
        asks_cpu: Whether the processor time of its next call is read.
        wait_ratio: In totals, the part of the time that the consumer waited for it,
            from 0 to 1; None if it waits for others, which get its part.
        held_bytes: In totals, the size of the elements that it holds ready.
    """

    number: int
    name: str
    kind: str
    inputs: list[int] = dataclasses.field(default_factory=list)
    spec: Any = None
    numbers: Numbers = dataclasses.field(default_factory=Numbers)
    asks_cpu: bool = True
    wait_ratio: float | None = None
    held_bytes: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has counted nothing yet.
        return Meter, (self.number, self.name, self.kind, self.inputs)


class _ThreadState(threading.local):
    """The state of this thread.

    Attributes:
        root: The node whose call is the outermost one.
        nested_ns: The time of other nodes within the current call.
        nested_cpu_ns: The processor time of other nodes within the current call.
    """

    root: Meter | None = None
    nested_ns = 0
    nested_cpu_ns = 0


@dataclasses.dataclass(slots=True)
class WorkerNumbers:
    """The measurement of one worker process.

    Attributes:
        imported: See `IMPORTED`.
        began_ns: The time of the first call for an element, by its clock.
        alive_ns: The time since then.
        elements: The number of elements that it returned.
        working_ns: The time in which it computed them.
        sending_ns: The processor time in which it sent them.
    """

    pid: int
    began_ns: int
    alive_ns: int = 0
    elements: int = 0
    working_ns: int = 0
    sending_ns: int = 0
    numbers: list[Numbers] = dataclasses.field(default_factory=list)
    specs: list[Any] = dataclasses.field(default_factory=list)
    imported: bytes = IMPORTED


class Costs(NamedTuple):
    """The time that measuring adds to a node's own time, in ns.

    Attributes:
        call: For each call of the node.
        of_parent: For each call of a parent that the node makes.
        asking: For each such call whose processor time is read, in addition.
    """

    call: int = 0
    of_parent: int = 0
    asking: int = 0


class Measurement:
    """The meters of a chain.

    Attributes:
        meters: One for each node, in the order of their numbers.
        datasets: The nodes; empty in a worker.
        next_number: The number of the next node's meter.
        updated_ns: The time of the last element, by `time.perf_counter_ns`.
        others_ns: The time in which other programs had the processor while the consumer
            waited, as far as the kernel counts it.
        own: The measurement of this process, if it is a worker.
        workers: The last snapshots of worker processes, by process.
    """

    def __init__(self, costs: Costs, meters: list[Meter] | None = None) -> None:
        self.meters = meters or []
        self.datasets: list[Any] = []
        self.next_number = len(self.meters)
        self.costs = costs
        self._lock = threading.Lock()
        self.state = _ThreadState()
        self.updated_ns = time.perf_counter_ns()
        self.others_ns = 0
        self.own = WorkerNumbers(os.getpid(), self.updated_ns)
        self.workers: dict[tuple[bytes, int], WorkerNumbers] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Measurement, (self.costs, self.meters)

    def meter_of(self, dataset: Any, kind: str) -> Meter:
        """Return the meter with the next number, which is made if there is none."""
        number = self.next_number
        self.next_number += 1
        if number == len(self.meters):
            self.meters.append(Meter(number, node_line(dataset), kind))
            self.datasets.append(dataset)
        self.meters[number].inputs.clear()
        return self.meters[number]

    def start(self, meter: Meter) -> tuple[Any, ...]:
        """Begin a call of a node in this thread; pass the result to `stop`."""
        state = self.state
        outer = (state.root, state.nested_ns, state.nested_cpu_ns)
        if state.root is None:
            state.root = meter
        state.nested_ns = state.nested_cpu_ns = 0
        cpu = (time.thread_time_ns(), sleeps()) if meter.asks_cpu else None
        return outer, cpu, time.perf_counter_ns()

    def stop(self, meter: Meter, started: tuple[Any, ...], elements: int) -> None:
        """End a call that `start` began and that made `elements` elements."""
        now = time.perf_counter_ns()
        (root, nested_ns, nested_cpu_ns), cpu, start_ns = started
        duration_ns = now - start_ns
        cpu_ns = duration_ns
        others_ns = 0
        meter.asks_cpu = duration_ns > ASK_CPU_NS or meter.kind in WAITING
        if cpu is not None:
            cpu_ns = min(time.thread_time_ns() - cpu[0], duration_ns)
            if sleeps() == cpu[1]:
                # It never waited, so other programs ran for the rest of the time.
                others_ns, duration_ns = duration_ns - cpu_ns, cpu_ns
        state = self.state
        assert state.root is not None
        own = duration_ns - state.nested_ns - self.costs.call
        own_cpu = cpu_ns - state.nested_cpu_ns - self.costs.call
        with self._lock:
            # The consumer calls the last node of the chain.
            direct = state.root.number == 0
            meter.numbers.add_call(own, own_cpu, elements, direct)
            if root is None:
                meter.numbers.begun += not direct
                self.others_ns += direct * others_ns
                self.updated_ns = now
        state.root = root
        cost_ns = self.costs.of_parent + (self.costs.asking if cpu is not None else 0)
        state.nested_ns = nested_ns + duration_ns + cost_ns
        state.nested_cpu_ns = nested_cpu_ns + cpu_ns + cost_ns

    def look_at(self, meter: Meter, element: Any) -> None:
        """Add the spec and the size of an element."""
        if element is None:
            return
        start_ns = time.perf_counter_ns()
        size = size_of(element)
        with self._lock:
            meter.numbers.sized += 1
            meter.numbers.bytes += size
        if meter.spec is None:
            meter.spec = batching.spec_like(element, batching.tree_rules())
        # This does not count as time of the node that called for the element.
        duration_ns = time.perf_counter_ns() - start_ns
        self.state.nested_ns += duration_ns
        self.state.nested_cpu_ns += duration_ns

    def snapshot(self) -> bytes:
        """Return all numbers as bytes to send to another process."""
        self.own.pid = os.getpid()
        self.own.alive_ns = time.perf_counter_ns() - self.own.began_ns
        self.own.numbers = [meter.numbers for meter in self.meters]
        self.own.specs = [meter.spec for meter in self.meters]
        return pickle.dumps(self.own, 5)

    def receive(self, snapshot: bytes) -> None:
        """Keep a snapshot of a worker in place of its last one."""
        stats: WorkerNumbers = pickle.loads(snapshot)
        process = stats.imported, stats.pid
        if process == (IMPORTED, os.getpid()):
            return  # This process has computed the stream.
        self.workers[process] = stats
        for meter, spec in zip(self.meters, stats.specs, strict=True):
            if meter.spec is None:
                meter.spec = spec

    def totals(self) -> list[Meter]:
        """Return the meters with the numbers of the workers added."""
        merged = []
        for meter in self.meters:
            numbers = dataclasses.replace(meter.numbers)
            for worker in self.workers.values():
                numbers.add_worker(worker.numbers[meter.number])
            merged.append(dataclasses.replace(meter, numbers=numbers))
        return merged


class Stopwatch:
    """Takes the time, without that of other programs if the thread did not wait."""

    def __init__(self) -> None:
        self._sleeps = sleeps()
        self._cpu_ns = time.thread_time_ns()
        self._began_ns = time.perf_counter_ns()

    def read_ns(self) -> int:
        """Return the time since the stopwatch was made."""
        duration_ns = time.perf_counter_ns() - self._began_ns
        cpu = time.thread_time_ns() - self._cpu_ns
        return duration_ns if sleeps() != self._sleeps else min(duration_ns, cpu)
