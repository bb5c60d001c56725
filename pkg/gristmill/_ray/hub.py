"""A named Ray actor, the hub, that runs worker actors for several jobs.

A job is one pipeline of one process that has joined the hub, so each rank of a training
has a job of its own.  Jobs find the hub by its name, and share its actors.  If jobs
share a stream, the hub computes each of its units only once.  The hub outlives the job
that started it.  It ends a while after the last job has left.

A lane is a pair that waits for one unit at a time: a job and the number of its caller.
The lane of a sequential stream that jobs share is the pipeline's name and the stream's
number, so that one actor computes all its units.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any, NamedTuple

from gristmill._pool.identity import digest_of, names_of_differences
from gristmill._pool.pool import Lane, WorkerLost
from gristmill._pool.unit_task import UnitTask
from gristmill._ray.actor import ActorLocation
from gristmill._ray.actor_pool import ActorPool
from gristmill._ray.shared import LaggingError, SharedStream, Unit

NAMESPACE = "gristmill"
# The hub runs at most this many calls at a time, each in a thread; Ray queues the
# others.
MAX_CALLS = 256
# A job that has made no call for this long, in s, counts as ended.
JOB_TIMEOUT_S = 30.0
# The hub ends after this time without a job, in s.
IDLE_S = 10.0
# Time between two checks for jobs that count as ended, in s.
CHECK_S = 1.0


class Membership(NamedTuple):
    """The description of a job that joins the hub.

    Attributes:
        job: The unique name of the job.
        version: The version of Gristmill that it uses.
        actors: The number of actors that it needs.
        options: A digest of the Ray options for each actor.
        pipeline: A reference to the packed pipeline, in a tuple so that Ray passes the
            reference and not the object.
        share: The name of the stream that it shares; empty if it shares none.
        window: The number of units that the stream keeps for each job; see
            `SharedStream`.
        parts: Digests of the parts of the pipeline; see `SharedStream`.
    """

    job: str
    version: str
    actors: int
    options: str
    pipeline: tuple[Any]
    share: str
    window: int
    parts: dict[str, str]


class UnitComputed(NamedTuple):
    """The reply for a unit that was computed.

    Attributes:
        unit: The number of the unit in its shared stream; -1 if it is not shared.
        actor: The number of the actor that computed it.
        location: The node and the process of the actor.
        answer: A reference to the `TaskResult`, in a tuple so that Ray passes the
            reference and not the object.
    """

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


Reply = UnitComputed | WorkerLost | UnitRejected


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
class _Pipeline:
    """A pipeline of one job, or of several that share its stream.

    Attributes:
        name: The name by which the actors keep the program of the pipeline.
        packed: A reference to the packed program.
        stream: The units that the jobs share; None if the job does not share.
        jobs: The names of the jobs that use it.
    """

    name: str
    packed: Any
    stream: SharedStream | None
    jobs: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(eq=False)
class _Job:
    """A job that has joined.

    Attributes:
        pipeline: The pipeline whose units it requests.
        actors: The number of actors that it needs.
        last_call_s: The time of its last call, by `time.monotonic`.
    """

    pipeline: _Pipeline
    actors: int
    last_call_s: float


class Hub:
    """Runs the worker actors of all jobs.  Ray calls it from several threads.

    Args:
        name: Its name in messages.
        version: The version of Gristmill that starts it.
        options: The Ray options for each actor.
    """

    def __init__(self, name: str, version: str, options: dict[str, Any]) -> None:
        import ray

        self._ray = ray
        self._name = name
        self._version = version
        self._options = digest_of(options)
        # Guards `_jobs`, `_pipelines` and the fields of their values that change.  The
        # pool and each `SharedStream` have their own locks, which are taken while this
        # one is held, never the other way around.
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._pipelines: dict[str, _Pipeline] = {}
        # Maps each lane that waits for a shared unit to the lane that computes it.
        # Each call sets and removes only its own lane, without a lock.
        self._computing_lanes: dict[Lane, Lane] = {}
        # The largest job sets the number of actors, see `_resize`.
        self._pool = ActorPool(None, 0, options, reports_progress=False)
        self._pool.open("hub")
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
        # A copy that the hub owns, because it must outlive the job.
        packed = self._ray.put(self._ray.get(membership.pipeline[0]))
        with self._lock:
            name = f"share {membership.share}" if membership.share else membership.job
            pipeline = self._pipelines.get(name)
            if pipeline is None:
                stream = None
                if membership.share:
                    stream = SharedStream(membership.parts, membership.window)
                pipeline = self._pipelines[name] = _Pipeline(name, packed, stream)
            elif difference := _describe_difference(membership, pipeline):
                return difference
            pipeline.jobs.add(membership.job)
            self._jobs[membership.job] = _Job(
                pipeline, membership.actors, time.monotonic()
            )
            self._resize()
        return ""

    def leave(self, job: str) -> None:
        """Remove a job, and its pipeline if no other job uses it."""
        with self._lock:
            entry = self._jobs.pop(job, None)
            if entry is None:
                return
            pipeline = entry.pipeline
            pipeline.jobs.discard(job)
            self._pool.release_lanes(job)
            if pipeline.stream is not None:
                pipeline.stream.leave(job)
            if not pipeline.jobs:
                del self._pipelines[pipeline.name]
                self._pool.release_lanes(pipeline.name)
                self._pool.drop_program(pipeline.name)
            if self._jobs:  # Otherwise the actors stay for the next job, for `IDLE_S`.
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
        task, pipeline = UnitTask(*task), entry.pipeline
        if pipeline.stream is None:
            return self._compute((job, lane), pipeline, task)
        # The actor that computed the previous output continues, for any job.
        calling_lane = job, lane
        computing_lane = (
            (pipeline.name, task.stream) if task.sequential else calling_lane
        )
        try:
            unit, must_compute = pipeline.stream.claim(task, computing_lane, job, lost)
        except LaggingError:
            return UnitRejected(_describe_lag(pipeline, task))
        if must_compute:
            return self._compute_shared(unit, pipeline, pipeline.stream, task)
        self._computing_lanes[calling_lane] = unit.lane
        try:
            return _wait_for(unit)
        finally:
            self._computing_lanes.pop(calling_lane, None)

    def activity(self, job: str, lane: int) -> str:
        """Return a sentence about what a lane waits for."""
        return self._pool.activity(self._computing_lane((job, lane)))

    def end_worker(self, job: str, lane: int) -> None:
        """End the actor that a lane waits for."""
        self._pool.end_worker(self._computing_lane((job, lane)))

    def _computing_lane(self, lane: Lane) -> Lane:
        """Return the lane for whose unit `lane` waits; `lane` if it waits for none."""
        return self._computing_lanes.get(lane, lane)

    def _compute_shared(
        self, unit: Unit, pipeline: _Pipeline, stream: SharedStream, task: UnitTask
    ) -> Reply:
        """Have an actor compute a unit, and give the reply to all calls for it."""
        try:
            reply = self._compute(unit.lane, pipeline, task)
        except BaseException as error:
            stream.withdraw(task, unit)
            unit.reply.set_exception(error)
            raise
        if isinstance(reply, UnitComputed):
            reply = reply._replace(unit=unit.number)
        else:
            stream.withdraw(task, unit)
        unit.reply.set_result(reply)
        return reply

    def _compute(self, lane: Lane, pipeline: _Pipeline, task: UnitTask) -> Reply:
        """Have an actor compute a unit, and wait for it.

        Waits only for the traceback, which the actor returns together with the answer,
        so that the answer does not move to the node of the hub.
        """

        def start_call(handle: Any) -> Any:
            method = handle.compute_of.options(num_returns=2)
            return method.remote(pipeline.name, (pipeline.packed,), *task)

        # `num_returns=2`: Ray returns a reference for each item of the returned tuple.
        started_call = self._pool.call(lane, start_call)
        if started_call is None:
            return UnitRejected(self._pool.failure)
        actor, (traceback_reference, answer) = started_call
        try:
            _, load_traceback = self._pool.wait_for(actor, traceback_reference)
        except Exception as error:
            loss = self._pool.record_failure(lane, actor, error)
            # The job gets text, because an `Actor` belongs to the pool in this process.
            return loss._replace(worker=str(loss.worker))
        self._pool.record_answer(lane, actor)
        if load_traceback:
            return UnitRejected(f"{actor} cannot load the pipeline:\n{load_traceback}")
        assert actor.location is not None
        return UnitComputed(-1, actor.number, actor.location, (answer,))

    def _touch(self, job: str) -> _Job | None:
        """Record that a job is alive, and return it; `_lock` is held.

        Returns None if the job has not joined, or was removed.
        """
        if (entry := self._jobs.get(job)) is not None:
            entry.last_call_s = time.monotonic()
        return entry

    def _resize(self) -> None:
        """Run as many actors as the largest job needs; `_lock` is held."""
        wanted = max(job.actors for job in self._jobs.values())
        if wanted != self._pool.count:
            self._pool.resize(wanted)

    def _watch(self) -> None:
        """Remove silent jobs, and end the hub if no job is left."""
        last_job_s = time.monotonic()
        while True:
            time.sleep(CHECK_S)
            now = time.monotonic()
            with self._lock:
                silent_jobs = [
                    job
                    for job, entry in self._jobs.items()
                    if now - entry.last_call_s > JOB_TIMEOUT_S
                ]
            for job in silent_jobs:
                self.leave(job)
            if self._jobs:
                last_job_s = now
            # Read without the lock: a job that joins now starts another hub.
            elif self._pool.failure or now - last_job_s > IDLE_S:
                self._pool.close("hub")
                self._ray.kill(self._ray.get_runtime_context().current_actor)
                return


def _wait_for(unit: Unit) -> Reply:
    """Wait until another call finishes the unit; return its reply."""
    reply: Reply = unit.reply.result()
    # The lane that requested the unit counts the loss, so this lane must not.
    if isinstance(reply, WorkerLost):
        return reply._replace(blames_unit=False)
    return reply


def _describe_difference(membership: Membership, pipeline: _Pipeline) -> str:
    """Return the reason why a job cannot share a pipeline; empty if it can."""
    known = {} if pipeline.stream is None else pipeline.stream.parts
    if not (names := names_of_differences(known, membership.parts)):
        return ""
    return (
        f"share={membership.share!r} names a stream that differs from this one in"
        f" {names}. Pass the same arguments in all jobs that share it,"
        " or use another name."
    )


def _describe_lag(pipeline: _Pipeline, task: UnitTask) -> str:
    assert pipeline.stream is not None
    return (
        f"This job lags too far behind the other jobs of {pipeline.name}: it needs"
        f" {task}. Only the last {pipeline.stream.window} units that each job was the"
        " first to request are kept. Pass a larger window, resume from a newer state,"
        " or do not pass share."
    )
