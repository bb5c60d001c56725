"""A named Ray actor, the hub, that runs worker actors for several jobs.

Jobs find it by its name.  The ranks of a job have separate pipelines and share the
actors.  If jobs share a stream, the hub computes each of its units only once.  The hub
outlives the job that started it.  It ends a while after the last job has left.

A lane is a caller that waits for one unit at a time.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any, NamedTuple

from gristmill._ray.actor import ActorLocation, UnitTask
from gristmill._ray.actor_pool import ActorPool
from gristmill._ray.identity import digest_of
from gristmill._ray.pool import ActorLost, Lane
from gristmill._ray.shared import LaggingError, SharedStream

NAMESPACE = "gristmill"
# The hub runs at most this many calls at a time; Ray queues the others.
MAX_CALLS = 256
# A job that has made no call for this long, in s, counts as ended.
JOB_TIMEOUT_S = 30.0
# The hub ends after this time without a job, in s.
IDLE_S = 10.0
CHECK_S = 1.0


class Membership(NamedTuple):
    """The description of a job that joins the hub.

    Attributes:
        job: The unique name of the job.
        version: The version of Gristmill that it uses.
        actors: The number of actors that it needs.
        options: A digest of the options of Ray for each actor.
        program: A reference to the packed pipeline, in a tuple so that Ray passes the
            reference and not the object.
        share: The name of the stream that it shares; empty if it shares none.
        window: The number of units kept per job; see `SharedStream`.
        parts: Digests of the parts of the pipeline; see `SharedStream`.
    """

    job: str
    version: str
    actors: int
    options: str
    program: tuple[Any]
    share: str
    window: int
    parts: dict[str, str]


class UnitComputed(NamedTuple):
    """The reply for a unit that was computed; `answer` holds a reference."""

    unit: int
    actor: int
    location: ActorLocation
    answer: tuple[Any]


class UnitRejected(NamedTuple):
    """The reply if no answer will come.

    Attributes:
        why: The reason; empty if the job has to join first.
    """

    why: str


Reply = UnitComputed | ActorLost | UnitRejected


class HubStatus(NamedTuple):
    """The state of the actors.

    Attributes:
        locations: The nodes and processes of the running actors.
        wanted: The number of actors that should run.
        failure: The reason why no actor can be started; empty if there is none.
        member: Whether the calling job has joined.
    """

    locations: list[ActorLocation]
    wanted: int
    failure: str
    member: bool


@dataclasses.dataclass(eq=False)
class _Program:
    """A pipeline, of one job or of several that share it."""

    name: str
    packed: Any
    stream: SharedStream | None
    jobs: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(eq=False)
class _Job:
    program: _Program
    actors: int
    last_call_s: float


class Hub:
    """Runs the worker actors of all jobs.  Ray calls it from several threads.

    Args:
        name: Its name in messages.
        version: The version of Gristmill that starts it.
        options: Options of Ray for each actor.
    """

    def __init__(self, name: str, version: str, options: dict[str, Any]) -> None:
        import ray

        self._ray = ray
        self._name = name
        self._version = version
        self._options = digest_of(options)
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._programs: dict[str, _Program] = {}
        # Maps each lane that waits for a shared unit to the lane that computes it.
        self._waiting: dict[Lane, Lane] = {}
        self._pool = ActorPool(None, 0, options, reports_progress=False)
        self._pool.open()
        threading.Thread(target=self._watch, name="gristmill-hub", daemon=True).start()

    def join(self, membership: Membership) -> str:
        """Add a job.

        Returns:
            The reason why the job was refused; empty if it was added.
        """
        if membership.version != self._version:
            return (
                f"Expected Gristmill {self._version}, the version of {self._name}, got"
                f" {membership.version}. Use the same version, or another name."
            )
        if membership.options != self._options:
            return (
                f"Expected the options of {self._name}, got other options. Pass the"
                " same options to all RayWorkers of that name, or use another name."
            )
        packed = self._ray.put(self._ray.get(membership.program[0]))
        with self._lock:
            name = f"share {membership.share}" if membership.share else membership.job
            program = self._programs.get(name)
            if program is None:
                stream = None
                if membership.share:
                    stream = SharedStream(membership.parts, membership.window)
                program = self._programs[name] = _Program(name, packed, stream)
            elif why := _describe_difference(membership, program):
                return why
            program.jobs.add(membership.job)
            self._jobs[membership.job] = _Job(
                program, membership.actors, time.monotonic()
            )
            self._resize()
        return ""

    def leave(self, job: str) -> None:
        """Remove a job, and its pipeline if no other job uses it."""
        with self._lock:
            entry = self._jobs.pop(job, None)
            if entry is None:
                return
            program = entry.program
            program.jobs.discard(job)
            self._pool.release_lanes(job)
            if program.stream is not None:
                program.stream.leave(job)
            if not program.jobs:
                del self._programs[program.name]
                self._pool.release_lanes(program.name)
                self._pool.drop_program(program.name)
            if self._jobs:
                self._resize()

    def heartbeat(self, job: str) -> HubStatus:
        """Record that a job is alive, and return the state of the actors."""
        with self._lock:
            entry = self._touch(job)
        pool = self._pool
        return HubStatus(pool.locations(), pool.count, pool.failure, entry is not None)

    def resize(self, job: str, actors: int) -> None:
        """Set the number of actors that a job needs; the largest of all jobs counts."""
        with self._lock:
            if entry := self._touch(job):
                entry.actors = actors
                self._resize()

    def compute_unit(self, job: str, lane: int, task: UnitTask, lost: int) -> Reply:
        """Return the reply for a unit: compute it, or wait if another job does.

        Args:
            job: The name of the calling job.
            lane: The number of the calling lane within the job.
            task: The unit.
            lost: The number of a unit whose answer was lost; -1 if there is none.
        """
        with self._lock:
            entry = self._touch(job)
        if entry is None:
            return UnitRejected("")
        task, program = UnitTask(*task), entry.program
        if program.stream is None:
            return self._compute((job, lane), program, task)
        # The actor that computed the previous output continues, for any job.
        by = (program.name, task.stream) if task.sequential else (job, lane)
        try:
            unit, ours = program.stream.claim(task, by, job, lost)
        except LaggingError:
            return UnitRejected(_describe_lag(program, task))
        if not ours:
            return self._wait_for((job, lane), unit)
        try:
            reply = self._compute(by, program, task)
        except BaseException as error:
            program.stream.withdraw(task, unit)
            unit.reply.set_exception(error)
            raise
        if isinstance(reply, UnitComputed):
            reply = reply._replace(unit=unit.number)
        else:
            program.stream.withdraw(task, unit)
        unit.reply.set_result(reply)
        return reply

    def doing(self, job: str, lane: int) -> str:
        """Return a sentence about what a lane waits for."""
        return self._pool.doing(self._waiting.get((job, lane), (job, lane)))

    def end(self, job: str, lane: int) -> None:
        """End the actor that a lane waits for."""
        self._pool.end(self._waiting.get((job, lane), (job, lane)))

    def _wait_for(self, lane: Lane, unit: Any) -> Reply:
        """Wait until another call finishes the unit; return its reply."""
        self._waiting[lane] = unit.lane
        try:
            reply: Reply = unit.reply.result()
        finally:
            self._waiting.pop(lane, None)
        # The lane that requested the unit counts the loss, so this lane must not.
        return reply._replace(blamed=False) if isinstance(reply, ActorLost) else reply

    def _compute(self, lane: Lane, program: _Program, task: UnitTask) -> Reply:
        def ask(handle: Any) -> Any:
            asked = handle.compute_of.options(num_returns=2)
            return asked.remote(program.name, (program.packed,), *task)

        called = self._pool.call(lane, ask)
        if called is None:
            return UnitRejected(self._pool.failure)
        actor, (failure, answer) = called
        try:
            _, why = self._pool.wait_for(actor, failure)
        except Exception as error:
            loss = self._pool.record_failure(lane, actor, error)
            return loss._replace(actor=str(loss.actor))
        self._pool.record_answer(lane, actor)
        if why:
            return UnitRejected(f"{actor} cannot load the pipeline:\n{why}")
        assert actor.location is not None
        return UnitComputed(-1, actor.number, actor.location, (answer,))

    def _touch(self, job: str) -> _Job | None:
        entry = self._jobs.get(job)
        if entry is not None:
            entry.last_call_s = time.monotonic()
        return entry

    def _resize(self) -> None:
        wanted = max(job.actors for job in self._jobs.values())
        if wanted != self._pool.count:
            self._pool.resize(wanted)

    def _watch(self) -> None:
        """Remove silent jobs, and end the hub if no job is left."""
        needed = time.monotonic()
        while True:
            time.sleep(CHECK_S)
            now = time.monotonic()
            for job, entry in list(self._jobs.items()):
                if now - entry.last_call_s > JOB_TIMEOUT_S:
                    self.leave(job)
            if self._jobs:
                needed = now
            elif self._pool.failure or now - needed > IDLE_S:
                self._pool.close()
                self._ray.kill(self._ray.get_runtime_context().current_actor)
                return


def _describe_difference(membership: Membership, program: _Program) -> str:
    parts = {} if program.stream is None else program.stream.parts
    others = membership.parts
    differing = sorted(
        name for name in parts | others if parts.get(name) != others.get(name)
    )
    if not differing:
        return ""
    return (
        f"share={membership.share!r} names a stream that differs from this one in"
        f" {', '.join(differing)}. Pass the same arguments in all jobs that share it,"
        " or use another name."
    )


def _describe_lag(program: _Program, task: UnitTask) -> str:
    assert program.stream is not None
    return (
        f"This job lags too far behind the other jobs of {program.name}: it needs"
        f" {task}, but only each job's last {program.stream.window} calls are kept."
        " Pass a larger window, resume from a newer state, or do not pass share."
    )
