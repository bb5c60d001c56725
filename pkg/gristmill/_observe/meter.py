"""What is measured of the nodes of one chain, in all threads and worker processes."""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
import time
from typing import Any, NamedTuple

from gristmill import batching
from gristmill._base.sizes import size_of
from gristmill._dataset.model.names import line_of
from gristmill._engine.stage_times import sleeps

# A call after one that took less is taken to compute all the time, not to wait: asking
# the system about it would take longer than the call.
ASK_CPU_NS = 20_000
# What these do may take long all of a sudden.
WAITING = ("read", "prefetch", "transport")
# Tells processes of one number apart, as those of several machines may be: whoever
# imports this has another, and forks of those have other numbers.
IMPORTED = os.urandom(8)


@dataclasses.dataclass(slots=True)
class Numbers:
    """What is counted of one node; its own time is that without its parents'.

    Attributes:
        elements: How many it made.
        calls: How many calls made them.
        direct_ns: Its own time in these, while the consumer of the chain waited.
        background_ns: As well, in other threads and processes.
        cpu_ns: Its own processor time, in all threads.
        direct_cpu_ns: As well, while the consumer of the chain waited.
        least_ns: Its own time for an element, at least; most_ns: at most.
        sized: Elements of which the size was taken; bytes: their size.
        begun: Calls with which work of a thread or a worker process began.
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
        """Count a call."""
        self.calls += 1
        self.cpu_ns += cpu_ns
        if direct:
            self.direct_ns += own_ns
            self.direct_cpu_ns += cpu_ns
        else:
            self.background_ns += own_ns
        if elements:
            each = max(own_ns // elements, 0)
            self._take_extent(each, each)
            self.elements += elements

    def add_worker(self, sent: Numbers) -> None:
        """Count what a worker measured: all of it is in the background."""
        if sent.elements:
            self._take_extent(sent.least_ns, sent.most_ns)
        self.background_ns += sent.direct_ns + sent.background_ns
        for name in ("elements", "calls", "cpu_ns", "sized", "bytes", "begun"):
            setattr(self, name, getattr(self, name) + getattr(sent, name))

    def _take_extent(self, least_ns: int, most_ns: int) -> None:
        self.least_ns = min(self.least_ns, least_ns) if self.elements else least_ns
        self.most_ns = max(self.most_ns, most_ns)

    @property
    def direct(self) -> int:
        """Its own time, in ns, while the consumer waited."""
        return max(self.direct_ns, 0)

    @property
    def background(self) -> int:
        """Its own time, in ns, in other threads and processes."""
        return max(self.background_ns, 0)

    @property
    def total_ns(self) -> int:
        """Its own time, in ns, in all threads and processes."""
        return self.direct + self.background

    @property
    def computes(self) -> float:
        """The part of its time in which it computed rather than waited.

        In other threads it waits for their turn, too, so that what it did while the
        consumer waited counts, if there is such.
        """
        whole, cpu = self.direct_ns, self.direct_cpu_ns
        if whole <= 0:
            whole, cpu = self.background_ns, self.cpu_ns
        return min(max(cpu / whole, 0.0), 1.0) if whole > 0 else 1.0

    @property
    def bytes_each(self) -> float:
        """Bytes of an element, on the average."""
        return self.bytes / self.sized if self.sized else 0.0


@dataclasses.dataclass(slots=True)
class Meter:
    """What is known of one node.

    Attributes:
        number: The node's, counted from the last node of the chain, 0, depth first.
        inputs: Numbers of its parents.
        spec: What its first element looks like, None before that.
        asks_cpu: Whether the system is asked about its next call.
        wait_ratio: In totals, its part of the time that the consumer waited, from 0 to
            1; None for a node that waits for others, whose part is given to those.
        held_bytes: In totals, what it holds ready.
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


class _Here(threading.local):
    """What this thread is at: the node that was asked first, of those at work.

    What nodes further up took of the call in work is nested.
    """

    root: Meter | None = None
    nested_ns = 0
    nested_cpu_ns = 0


@dataclasses.dataclass(slots=True)
class WorkerNumbers:
    """What one worker process measured.

    Attributes:
        imported: See `IMPORTED`.
        began_ns: When its first element was asked for, by its clock.
        alive_ns: How long ago that was.
        elements: Elements that it gave out.
        working_ns: Time in which it computed them.
        sending_ns: Processor time that it took to send them.
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
    """What measuring adds to the times that are measured, in ns.

    Attributes:
        call: To a node's own time, for each call to it.
        of_parent: To a node's own time, for each call that it makes to a parent.
        asking: To a node's own time, for each such call whose processor time is asked
            for as well.
    """

    call: int = 0
    of_parent: int = 0
    asking: int = 0


class Measurement:
    """The meters of a chain.

    Attributes:
        meters: One for each node, in the order of their numbers.
        datasets: The nodes; none in a worker.
        next_number: The number of the next node's meter.
        updated_ns: When an element was last given out, by `time.perf_counter_ns`.
        others_ns: Time in which other programs had the processor while the consumer
            waited, as far as the system can tell.
        own: What this process has measured, as a worker.
        workers: What worker processes said last, by process.
    """

    def __init__(self, costs: Costs, meters: list[Meter] | None = None) -> None:
        self.meters = meters or []
        self.datasets: list[Any] = []
        self.next_number = len(self.meters)
        self.costs = costs
        self._lock = threading.Lock()
        self.here = _Here()
        self.updated_ns = time.perf_counter_ns()
        self.others_ns = 0
        self.own = WorkerNumbers(os.getpid(), self.updated_ns)
        self.workers: dict[tuple[bytes, int], WorkerNumbers] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Measurement, (self.costs, self.meters)

    def meter_of(self, dataset: Any, kind: str) -> Meter:
        """The meter with the next number, a new one where there is none, for a node."""
        number = self.next_number
        self.next_number += 1
        if number == len(self.meters):
            self.meters.append(Meter(number, line_of(dataset), kind))
            self.datasets.append(dataset)
        self.meters[number].inputs.clear()
        return self.meters[number]

    def start(self, meter: Meter) -> tuple[Any, ...]:
        """Begin a call to a node, in this thread; pass the result to `stop`."""
        here = self.here
        outer = (here.root, here.nested_ns, here.nested_cpu_ns)
        if here.root is None:
            here.root = meter
        here.nested_ns = here.nested_cpu_ns = 0
        cpu = (time.thread_time_ns(), sleeps()) if meter.asks_cpu else None
        return outer, cpu, time.perf_counter_ns()

    def stop(self, meter: Meter, started: tuple[Any, ...], elements: int) -> None:
        """End a call that `start` began and that made this many elements."""
        now = time.perf_counter_ns()
        (root, nested_ns, nested_cpu_ns), cpu, began = started
        took = now - began
        cpu_took = took
        others_ns = 0
        meter.asks_cpu = took > ASK_CPU_NS or meter.kind in WAITING
        if cpu is not None:
            cpu_took = min(time.thread_time_ns() - cpu[0], took)
            if sleeps() == cpu[1]:
                # It never waited: the rest of the time other programs were at work.
                others_ns, took = took - cpu_took, cpu_took
        here = self.here
        assert here.root is not None
        own = took - here.nested_ns - self.costs.call
        own_cpu = cpu_took - here.nested_cpu_ns - self.costs.call
        with self._lock:
            # The consumer asks the last node of the chain.
            direct = here.root.number == 0
            meter.numbers.add_call(own, own_cpu, elements, direct)
            if root is None:
                meter.numbers.begun += not direct
                self.others_ns += direct * others_ns
                self.updated_ns = now
        here.root = root
        added = self.costs.of_parent + (self.costs.asking if cpu is not None else 0)
        here.nested_ns = nested_ns + took + added
        here.nested_cpu_ns = nested_cpu_ns + cpu_took + added

    def look_at(self, meter: Meter, element: Any) -> None:
        """Take the looks and the size of an element into account."""
        if element is None:
            return
        began = time.perf_counter_ns()
        size = size_of(element)
        with self._lock:
            meter.numbers.sized += 1
            meter.numbers.bytes += size
        if meter.spec is None:
            meter.spec = batching.spec_like(element, batching.tree_rules())
        # To the node that asked for the element this is not its own time.
        took = time.perf_counter_ns() - began
        self.here.nested_ns += took
        self.here.nested_cpu_ns += took

    def snapshot(self) -> bytes:
        """All numbers, to be sent to another process."""
        self.own.pid = os.getpid()
        self.own.alive_ns = time.perf_counter_ns() - self.own.began_ns
        self.own.numbers = [meter.numbers for meter in self.meters]
        self.own.specs = [meter.spec for meter in self.meters]
        return pickle.dumps(self.own, 5)

    def receive(self, snapshot: bytes) -> None:
        """Take what `snapshot` returned in a worker; only its last one counts."""
        said: WorkerNumbers = pickle.loads(snapshot)
        process = said.imported, said.pid
        if process == (IMPORTED, os.getpid()):
            return  # Streams that are computed here need no telling.
        self.workers[process] = said
        for meter, spec in zip(self.meters, said.specs, strict=True):
            if meter.spec is None:
                meter.spec = spec

    def totals(self) -> list[Meter]:
        """The meters, with what the workers measured in the background."""
        merged = []
        for meter in self.meters:
            numbers = dataclasses.replace(meter.numbers)
            for worker in self.workers.values():
                numbers.add_worker(worker.numbers[meter.number])
            merged.append(dataclasses.replace(meter, numbers=numbers))
        return merged


class Stopwatch:
    """Takes the time, less that of other programs, where the thread did not wait."""

    def __init__(self) -> None:
        self._sleeps = sleeps()
        self._cpu_ns = time.thread_time_ns()
        self._began_ns = time.perf_counter_ns()

    def read_ns(self) -> int:
        """The time since it was made."""
        took = time.perf_counter_ns() - self._began_ns
        cpu = time.thread_time_ns() - self._cpu_ns
        return took if sleeps() != self._sleeps else min(took, cpu)
