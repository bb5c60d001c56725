"""What is measured of the nodes of one chain, in all threads and worker processes."""

from __future__ import annotations

import dataclasses
import os
import pickle
import resource
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

# A call after one that took less is taken to compute all the time, not to wait: asking
# the system about it would take longer than the call.
ASK_CPU_NS = 20_000
# What these do may take long all of a sudden.
WAITING = ("read", "prefetch", "transport")
MOST_SIZED = 64
# The numbers of a meter that travel from a worker.
FIELDS = (
    "elements",
    "timed",
    "calls",
    "direct_ns",
    "background_ns",
    "cpu_ns",
    "direct_cpu_ns",
    "least_ns",
    "most_ns",
    "sized",
    "bytes",
    "begun",
)


class Meter:
    """What is measured of one node.

    Attributes:
        number: The node's, counted from the last node of the chain, 0, depth first.
        name: What the node is called.
        kind: What it does; see `gristmill._observe.kinds`.
        inputs: Numbers of its parents.
        elements: How many it made.
        timed: How many of them in calls that were timed.
        calls: How many calls were timed.
        direct_ns: Its own time, while the consumer of the chain waited.
        background_ns: Its own time in other threads and processes.
        cpu_ns: Its own processor time, in all threads.
        direct_cpu_ns: As well, while the consumer of the chain waited.
        least_ns: Its own time for an element, at least.
        most_ns: Its own time for an element, at most.
        sized: Elements of which the size was taken.
        bytes: Their size.
        begun: Calls with which work of a thread or a worker process began.
        spec: What its first element looks like, None before that.
    """

    def __init__(self, number: int, name: str, kind: str) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.inputs: list[int] = []
        self.spec: Any = None
        self.clear()

    def clear(self) -> None:
        """Forget all numbers."""
        self._lock = threading.Lock()
        self.elements = self.calls = 0
        self.forget_times()
        self.sized = self.bytes = self.begun = 0
        self.asks_cpu = True

    def forget_times(self) -> None:
        """Forget how long its calls took, and that they were timed."""
        self.timed = 0
        self.direct_ns = self.background_ns = self.cpu_ns = self.direct_cpu_ns = 0
        self.least_ns = self.most_ns = 0

    def add(self, own_ns: int, cpu_ns: int, elements: int, direct: bool) -> None:
        """Take one call into account."""
        with self._lock:
            self.calls += 1
            if direct:
                self.direct_ns += own_ns
                self.direct_cpu_ns += cpu_ns
            else:
                self.background_ns += own_ns
            self.cpu_ns += cpu_ns
            if not elements:
                return
            each = max(own_ns // elements, 0)
            if not self.timed or each < self.least_ns:
                self.least_ns = each
            self.most_ns = max(self.most_ns, each)
            self.elements += elements
            self.timed += elements

    def take_size(self, element: Any) -> None:
        """Take the size of one element into account."""
        size = size_of(element)
        with self._lock:
            self.sized += 1
            self.bytes += size

    @property
    def direct(self) -> float:
        """Its own time, in ns, while the consumer waited, of all calls."""
        return max(self.direct_ns, 0) * self._scale

    @property
    def background(self) -> float:
        """Its own time, in ns, in other threads and processes, of all calls."""
        return max(self.background_ns, 0) * self._scale

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
    def _scale(self) -> float:
        return self.elements / self.timed if self.timed else 1.0

    @property
    def bytes_each(self) -> float:
        """Bytes of an element, on the average."""
        return self.bytes / self.sized if self.sized else 0.0

    def numbers(self) -> list[int]:
        """The numbers that travel, in the order of `FIELDS`."""
        return [getattr(self, name) for name in FIELDS]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.clear()


class _Here(threading.local):
    """What this thread is at.

    Attributes:
        root: The node that was asked first, of those at work; None before any.
        nested_ns: Time that nodes further up took of the call in work.
        nested_cpu_ns: Their processor time.
    """

    root: Meter | None = None
    nested_ns = 0
    nested_cpu_ns = 0


@dataclasses.dataclass(slots=True)
class WorkerNumbers:
    """What one worker process said last.

    Attributes:
        pid: The process.
        numbers: Of each meter, in the order of `FIELDS`.
        elements: Elements that it gave out.
        working_ns: Time in which it computed them.
        sending_ns: Processor time that it took to send them.
        alive_ns: Time since it began.
        specs: What elements of each node look like.
    """

    pid: int
    numbers: list[list[int]]
    elements: int
    working_ns: int
    sending_ns: int
    alive_ns: int
    specs: list[Any]


class Costs(NamedTuple):
    """What measuring adds to the times that are measured, in ns.

    Attributes:
        call: To a node's own time, for each call that is timed.
        of_parent: For each such call that it makes itself.
        untimed: For each that it makes and that is not timed.
    """

    call: int = 0
    of_parent: int = 0
    untimed: int = 0


class Measurement:
    """The meters of a chain.

    Args:
        costs: What measuring adds.

    Attributes:
        here: What this thread is at.
        meters: One for each node, in the order of their numbers.
        datasets: The nodes; none in a worker.
        output: The number of the node that the consumer asks.
        began_ns: When the measurement began, by `time.perf_counter_ns`.
        updated_ns: When an element was last given out.
        workers: What worker processes said last, by process.
        given: In a worker: elements that it gave out.
        working_ns: In a worker: time in which it computed them.
        sending_ns: In a worker: processor time that it took to send them.
    """

    def __init__(self, costs: Costs) -> None:
        self.meters: list[Meter] = []
        self.datasets: list[Any] = []
        self.costs = costs
        self.output = 0
        self._begin()

    def new_meter(self, dataset: Any, kind: str) -> Meter:
        """A meter with the next number, for a node."""
        meter = Meter(len(self.meters), str(dataset), kind)
        self.meters.append(meter)
        self.datasets.append(dataset)
        return meter

    def start(self, meter: Meter) -> tuple[Any, ...]:
        """Begin a call to a node, in this thread; pass the result to `stop`."""
        here = self.here
        outer = (here.root, here.nested_ns, here.nested_cpu_ns)
        if here.root is None:
            here.root = meter
        here.nested_ns = here.nested_cpu_ns = 0
        cpu = (time.thread_time_ns(), sleeps()) if meter.asks_cpu else None
        return outer, cpu, time.perf_counter_ns()

    def stop(self, meter: Meter, started: tuple[Any, ...], elements: int) -> int:
        """End the call, which made so many elements; returns how long it took."""
        now = time.perf_counter_ns()
        outer, cpu, began = started
        took: int = now - began
        cpu_took = took
        meter.asks_cpu = took > ASK_CPU_NS or meter.kind in WAITING
        if cpu is not None:
            cpu_took = min(time.thread_time_ns() - cpu[0], took)
            if sleeps() == cpu[1]:
                # It never waited: the rest of the time other programs were at work.
                took = cpu_took
        here = self.here
        root = here.root
        assert root is not None
        own = took - here.nested_ns - self.costs.call
        own_cpu = cpu_took - here.nested_cpu_ns - self.costs.call
        meter.add(own, own_cpu, elements, root.number == self.output)
        if outer[0] is None:
            meter.begun += meter.number != self.output
            self.updated_ns = now
        here.root = outer[0]
        here.nested_ns = outer[1] + took + self.costs.of_parent
        here.nested_cpu_ns = outer[2] + cpu_took + self.costs.of_parent
        return took

    def snapshot(self) -> bytes:
        """All numbers, to be sent to another process."""
        said = WorkerNumbers(
            os.getpid(),
            [meter.numbers() for meter in self.meters],
            self.given,
            self.working_ns,
            self.sending_ns,
            time.perf_counter_ns() - self.began_ns,
            [meter.spec for meter in self.meters],
        )
        return pickle.dumps(said, 5)

    def receive(self, snapshot: bytes) -> None:
        """Take what `snapshot` returned in a worker; only its last one counts."""
        said: WorkerNumbers = pickle.loads(snapshot)
        if said.pid == os.getpid():
            return  # Streams that are computed here need no telling.
        self.workers[said.pid] = said
        for meter, spec in zip(self.meters, said.specs, strict=True):
            if meter.spec is None:
                meter.spec = spec

    def totals(self) -> list[Meter]:
        """The meters, with what the workers measured in the background."""
        merged = []
        for meter in self.meters:
            total = Meter(meter.number, meter.name, meter.kind)
            total.inputs = list(meter.inputs)
            total.spec = meter.spec
            for field in FIELDS:
                setattr(total, field, getattr(meter, field))
            for worker in self.workers.values():
                _merge(total, worker.numbers[meter.number])
            merged.append(total)
        return merged

    def above(self, number: int) -> Iterator[int]:
        """The numbers of all nodes that a node is made of."""
        for parent in self.meters[number].inputs:
            yield parent
            yield from self.above(parent)

    def __getstate__(self) -> dict[str, Any]:
        return {"meters": self.meters, "costs": self.costs, "output": self.output}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        self.workers: dict[int, WorkerNumbers] = {}
        self.given = self.working_ns = self.sending_ns = 0
        self.here = _Here()
        self.began_ns = self.updated_ns = time.perf_counter_ns()


def _merge(total: Meter, numbers: list[int]) -> None:
    sent = dict(zip(FIELDS, numbers, strict=True))
    if not sent["calls"]:
        return
    if sent["timed"]:
        least = (total.least_ns, sent["least_ns"])
        total.least_ns = min(least) if total.timed else sent["least_ns"]
        total.most_ns = max(total.most_ns, sent["most_ns"])
    # In its own process a worker's consumer is the transport.
    total.background_ns += sent["direct_ns"] + sent["background_ns"]
    for name in ("elements", "timed", "calls", "cpu_ns", "sized", "bytes", "begun"):
        setattr(total, name, getattr(total, name) + sent[name])


def sleeps() -> int:
    """How often this thread has waited for something."""
    count: int = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return count


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


def size_of(element: Any) -> int:
    """About how many bytes an element has: its arrays, texts and numbers.

    Of a long list the first items stand for all.
    """
    if isinstance(element, (np.ndarray, np.generic)):
        return element.nbytes
    if isinstance(element, (bytes, bytearray, memoryview, str)):
        return len(element)
    if isinstance(element, dict):
        element = list(element.values())
    if isinstance(element, (list, tuple)):
        some = element[:MOST_SIZED]
        whole = sum(map(size_of, some))
        return whole * len(element) // max(len(some), 1)
    return 8 if isinstance(element, (bool, int, float)) else 0
