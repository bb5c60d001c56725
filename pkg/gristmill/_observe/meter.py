"""Times and counts of the nodes of one chain, in all threads and worker processes."""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
import time
from typing import Any, NamedTuple, TypeAlias

from gristmill import batching
from gristmill._base.sizes import size_of
from gristmill._dataset.model.names import node_line
from gristmill._engine.recording import current_recorder
from gristmill._engine.stage_times import sleeps

# After a shorter call, the next one counts as computing, not waiting, because a read of
# the processor time would take longer than the call.
MIN_CPU_READ_NS = 20_000
# Calls of nodes of these kinds may suddenly take long.
WAITING_KINDS = ("read", "prefetch", "transport")
# Distinguishes processes of several machines that have the same process id.  Each
# import draws another value; forks share the value but have other ids.
IMPORT_ID = os.urandom(8)


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
        min_ns: Its shortest own time for an element.
        max_ns: Its longest own time for an element.
        sized_elements: The number of elements whose size was measured.
        bytes: The total size of these elements.
        background_starts: The number of calls of the node by another thread or process
            than the consumer's, not counting nested calls.
    """

    elements: int = 0
    calls: int = 0
    direct_ns: int = 0
    background_ns: int = 0
    cpu_ns: int = 0
    direct_cpu_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    sized_elements: int = 0
    bytes: int = 0
    background_starts: int = 0

    def add_call(
        self, own_ns: int, cpu_ns: int, elements: int, is_direct: bool
    ) -> None:
        """Add a call; `is_direct` if the consumer of the chain waited for it."""
        self.calls += 1
        self.cpu_ns += cpu_ns
        if is_direct:
            self.direct_ns += own_ns
            self.direct_cpu_ns += cpu_ns
        else:
            self.background_ns += own_ns
        if elements:
            element_ns = max(own_ns // elements, 0)
            self._update_extremes(element_ns, element_ns)
            self.elements += elements

    def add_worker(self, worker: Numbers) -> None:
        """Add the numbers of a worker, all of which are in the background."""
        if worker.elements:
            self._update_extremes(worker.min_ns, worker.max_ns)
        self.background_ns += worker.direct_ns + worker.background_ns
        for name in (
            "elements",
            "calls",
            "cpu_ns",
            "sized_elements",
            "bytes",
            "background_starts",
        ):
            setattr(self, name, getattr(self, name) + getattr(worker, name))

    def _update_extremes(self, min_ns: int, max_ns: int) -> None:
        self.min_ns = min(self.min_ns, min_ns) if self.elements else min_ns
        self.max_ns = max(self.max_ns, max_ns)

    @property
    def clamped_direct_ns(self) -> int:
        """The node's own time while the consumer waited, at least 0.

        `direct_ns` may be negative, because the costs of measuring are subtracted.
        """
        return max(self.direct_ns, 0)

    @property
    def clamped_background_ns(self) -> int:
        """The node's own time in other threads and processes, at least 0."""
        return max(self.background_ns, 0)

    @property
    def total_ns(self) -> int:
        """The node's own time in all threads and processes, in ns."""
        return self.clamped_direct_ns + self.clamped_background_ns

    @property
    def cpu_share(self) -> float:
        """The part of its own time in which the node computed, not waited, from 0 to 1.

        Other threads also wait for their turn, so the time while the consumer waited
        counts, if there is any.
        """
        total_ns, cpu_ns = self.direct_ns, self.direct_cpu_ns
        if total_ns <= 0:
            total_ns, cpu_ns = self.background_ns, self.cpu_ns
        return min(max(cpu_ns / total_ns, 0.0), 1.0) if total_ns > 0 else 1.0

    @property
    def bytes_per_element(self) -> float:
        """The mean size of an element, in bytes."""
        return self.bytes / self.sized_elements if self.sized_elements else 0.0


@dataclasses.dataclass(slots=True)
class Meter:
    """The measurement of one node.

    Attributes:
        number: The node's number, depth first; the last node of the chain is 0.
        name: The line that describes the node in reports.
        kind: What the node does, for example "read"; see `WAITING_KINDS`.
        inputs: The numbers of its parents.
        spec: The spec of its first element, or None before that.
        reads_cpu_time: Whether the processor time of its next call is read.
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
    reads_cpu_time: bool = True
    wait_ratio: float | None = None
    held_bytes: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has counted nothing yet.
        return Meter, (self.number, self.name, self.kind, self.inputs)


class _ThreadState(threading.local):
    """The state of this thread.

    Attributes:
        root: The node whose call is the outermost one; None between calls.
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
        import_id: See `IMPORT_ID`.
        start_ns: The time of the first call for an element, by its clock.
        alive_ns: The time from then until the snapshot.
        elements: The number of elements that it returned.
        working_ns: The time in which it computed them.
        sending_ns: The processor time in which it sent them.
        numbers: The numbers of each node.
        specs: The specs of each node's first element, or None.
    """

    pid: int
    start_ns: int
    alive_ns: int = 0
    elements: int = 0
    working_ns: int = 0
    sending_ns: int = 0
    numbers: list[Numbers] = dataclasses.field(default_factory=list)
    specs: list[Any] = dataclasses.field(default_factory=list)
    import_id: bytes = IMPORT_ID


# ((outermost node, nested_ns, nested_cpu_ns) of the enclosing call, (processor time in
# ns, sleeps) or None if `reads_cpu_time` is False, start in ns)
CallStart: TypeAlias = tuple[tuple[Meter | None, int, int], tuple[int, int] | None, int]


class Costs(NamedTuple):
    """The time that measuring adds to a node's own time, in ns.

    Attributes:
        call: For each call of the node.
        parent_call: For each call of a parent that the node makes.
        cpu_read: For each such call whose processor time is read, in addition.
    """

    call: int = 0
    parent_call: int = 0
    cpu_read: int = 0


class Measurement:
    """The meters of a chain.

    Several threads may call `start`, `stop` and `sample_element` at the same time, so
    `_lock` guards changes of the meters' numbers, `updated_ns` and `others_ns`.  Other
    fields of a meter may be set by any of these threads, and the last one prevails.
    Reports read all without the lock.  Only the thread that receives outputs from
    workers changes `workers`, and only the thread that sends them changes `own`.

    Attributes:
        meters: One for each node, in the order of their numbers.
        datasets: The nodes; empty in a worker.
        next_number: The number of the next node's meter.
        updated_ns: The time of the last element, by `time.perf_counter_ns`.
        others_ns: The time in which other programs had the processor while the consumer
            waited, if the kernel counts it.
        own: The measurement of this process, if it is a worker.
        workers: The last snapshot of each worker process, by its import and process id.
        costs: The time that measuring takes, which is subtracted.
        state: The nested calls of each thread.
        records_intervals: Whether a trace gets the calls, because all are measured.
    """

    def __init__(self, costs: Costs, meters: list[Meter] | None = None) -> None:
        self.meters = meters or []
        self.datasets: list[Any] = []
        self.next_number = len(self.meters)
        self.costs = costs
        self._lock = threading.Lock()
        self.state = _ThreadState()
        self.records_intervals = True
        self.updated_ns = time.perf_counter_ns()
        self.others_ns = 0
        self.own = WorkerNumbers(os.getpid(), self.updated_ns)
        self.workers: dict[tuple[bytes, int], WorkerNumbers] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Measurement, (self.costs, self.meters)

    def meter_of(self, dataset: Any, kind: str) -> Meter:
        """Return the meter with the next number; make it if it does not exist."""
        number = self.next_number
        self.next_number += 1
        if number == len(self.meters):
            self.meters.append(Meter(number, node_line(dataset), kind))
            self.datasets.append(dataset)
        self.meters[number].inputs.clear()
        return self.meters[number]

    def start(self, meter: Meter) -> CallStart:
        """Begin a call of a node in this thread; pass the result to `stop`."""
        state = self.state
        outer = (state.root, state.nested_ns, state.nested_cpu_ns)
        if state.root is None:
            state.root = meter
        state.nested_ns = state.nested_cpu_ns = 0
        cpu = (time.thread_time_ns(), sleeps()) if meter.reads_cpu_time else None
        return outer, cpu, time.perf_counter_ns()

    def stop(self, meter: Meter, call: CallStart, elements: int) -> None:
        """End a call that `start` began and that made `elements` elements."""
        end_ns = time.perf_counter_ns()
        (outer_root, outer_nested_ns, outer_nested_cpu_ns), cpu, start_ns = call
        duration_ns = end_ns - start_ns
        cpu_ns = duration_ns  # If the processor time was not read: all was computing.
        others_ns = 0
        meter.reads_cpu_time = (
            duration_ns > MIN_CPU_READ_NS or meter.kind in WAITING_KINDS
        )
        if cpu is not None:
            cpu_ns = min(time.thread_time_ns() - cpu[0], duration_ns)
            if sleeps() == cpu[1]:
                # It never waited, so other programs ran for the rest of the time.
                others_ns, duration_ns = duration_ns - cpu_ns, cpu_ns
        state = self.state
        assert state.root is not None
        own_ns = duration_ns - state.nested_ns - self.costs.call
        own_cpu_ns = cpu_ns - state.nested_cpu_ns - self.costs.call
        with self._lock:
            # The consumer calls the last node of the chain.
            is_direct = state.root.number == 0
            meter.numbers.add_call(own_ns, own_cpu_ns, elements, is_direct)
            if outer_root is None:
                meter.numbers.background_starts += not is_direct
                self.others_ns += is_direct * others_ns
                self.updated_ns = end_ns
        recorder = current_recorder() if self.records_intervals else None
        if recorder is not None:
            recorder.add([(f"{meter.kind}: {meter.name}", start_ns, end_ns)])
        state.root = outer_root
        cost_ns = self.costs.parent_call
        if cpu is not None:
            cost_ns += self.costs.cpu_read
        state.nested_ns = outer_nested_ns + duration_ns + cost_ns
        state.nested_cpu_ns = outer_nested_cpu_ns + cpu_ns + cost_ns

    def sample_element(self, meter: Meter, element: Any) -> None:
        """Add the spec and the size of an element."""
        if element is None:
            return
        start_ns = time.perf_counter_ns()
        size = size_of(element)
        with self._lock:
            meter.numbers.sized_elements += 1
            meter.numbers.bytes += size
        if meter.spec is None:
            meter.spec = batching.spec_like(element, batching.tree_rules())
        # Exclude this time from that of the node that called for the element.
        duration_ns = time.perf_counter_ns() - start_ns
        self.state.nested_ns += duration_ns
        self.state.nested_cpu_ns += duration_ns

    def snapshot(self) -> bytes:
        """Return all numbers as bytes to send to another process."""
        self.own.pid = os.getpid()  # The process may be a fork.
        self.own.alive_ns = time.perf_counter_ns() - self.own.start_ns
        self.own.numbers = [meter.numbers for meter in self.meters]
        self.own.specs = [meter.spec for meter in self.meters]
        return pickle.dumps(self.own, 5)

    def receive(self, snapshot: bytes) -> None:
        """Keep a snapshot of a worker in place of its last one."""
        worker: WorkerNumbers = pickle.loads(snapshot)
        process = worker.import_id, worker.pid
        if process == (IMPORT_ID, os.getpid()):
            return  # This process has computed the stream.
        self.workers[process] = worker
        for meter, spec in zip(self.meters, worker.specs, strict=True):
            if meter.spec is None:
                meter.spec = spec

    def worker_numbers(self) -> list[WorkerNumbers]:
        """Return the numbers of each worker; any thread may call it."""
        # A copy, since the thread of the iterator may add a worker.
        return list(self.workers.values())

    def totals(self) -> list[Meter]:
        """Return the meters with the numbers of the workers added."""
        workers = self.worker_numbers()
        merged = []
        for meter in self.meters:
            numbers = dataclasses.replace(meter.numbers)
            for worker in workers:
                numbers.add_worker(worker.numbers[meter.number])
            merged.append(dataclasses.replace(meter, numbers=numbers))
        return merged


class Stopwatch:
    """Measures time, without that of other programs if the thread did not wait.

    Only the thread that made it may read it.
    """

    def __init__(self) -> None:
        self._sleeps = sleeps()
        self._cpu_ns = time.thread_time_ns()
        self._start_ns = time.perf_counter_ns()

    def read_ns(self) -> int:
        """Return the time since the stopwatch was made, in ns."""
        duration_ns = time.perf_counter_ns() - self._start_ns
        cpu_ns = time.thread_time_ns() - self._cpu_ns
        return duration_ns if sleeps() != self._sleeps else min(duration_ns, cpu_ns)
