"""The pool of a job that shares actors with other jobs; it calls the hub of `hub.py`.

The pool finds the hub by its name, or starts it.  If the hub is lost, its actors and
their results are lost too.  The pool then starts another hub and calls it again.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from typing import Any

from gristmill._base import log
from gristmill._engine.stream import Runnable
from gristmill._pool.identity import digest_of, digests_of
from gristmill._pool.pool import Lane, TimedResult, WorkerLost
from gristmill._pool.unit_task import UnitTask
from gristmill._ray.actor import ActorLocation
from gristmill._ray.actor_entry import ACTOR_CHECK_S, Actor
from gristmill._ray.actor_pool import put
from gristmill._ray.hub import MAX_CALLS, NAMESPACE, Hub, Membership, UnitComputed
from gristmill._ray.metrics import RayMetrics
from gristmill._ray.start_progress import StartProgress

HEARTBEAT_S = 1.0
# Attempts to get the answer of a unit; answers can be lost with their node.
MAX_LOST_ANSWERS = 20


class HubPool:
    """The actors of a named hub.  See `gristmill._pool.pool.Pool`.

    Args:
        program: The pipeline.
        count: The number of actors that this job needs.
        options: Arguments of Ray's ``ActorClass.options``.
        name: The name of the hub.
        share: The name of the shared stream; empty if the stream is not shared.
        window: The number of units that the hub keeps for each job; see
            `gristmill._ray.shared.SharedStream`.
        parts: Values besides the pipeline that determine the stream.
        version: The version of Gristmill.
    """

    def __init__(
        self,
        program: Runnable,
        count: int,
        options: dict[str, Any],
        *,
        name: str,
        share: str,
        window: int,
        parts: dict[str, Any],
        version: str,
    ) -> None:
        import ray

        self._ray = ray
        self._program = program
        self._count = count
        self._options = options
        self._name = name
        self._share = share
        self._window = window
        self._parts = parts
        self._version = version
        self._job = f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        # The owners of the lanes that use it.
        self._users: set[str] = set()
        self._closing = threading.Event()
        self._membership: Membership | None = None
        # Held while joining a hub, so that only one thread does, and while `_hub` is
        # set.  Threads read `_hub` without it.
        self._lock = threading.Lock()
        # Ray's handle of the hub that this job has joined; None until it has joined.
        self._hub: Any = None
        # The reason why a hub refused this job; empty if none did.
        self._refusal = ""
        # Keyed by location, so that all answers of an actor count for one object.
        # Lanes add actors, and the thread sets their `loss_reason`, without a lock.
        self._actors: dict[ActorLocation, Actor] = {}
        # The number of each lane of this job in calls of the hub.  Threads of several
        # lanes add to it without a lock, so numbers come from a counter.
        self._lane_numbers: dict[Lane, int] = {}
        self._next_lane_number = itertools.count()
        # Used by the pool's thread, and by each thread that waits for a hub to start.
        self._progress = StartProgress(ray)
        # The reason why no more answers will come; empty until then.
        self.failure = ""

    def new_metrics(self) -> RayMetrics:
        return RayMetrics()

    def open(self, owner: str) -> None:
        """Join the hub, and wait until it has started; it does not reserve a CPU.

        Raises:
            ValueError: The hub of this name uses another version of Gristmill, other
                options for actors, or another stream named `share`.
        """
        is_first = not self._users
        self._users.add(owner)
        if not is_first:
            return
        self._membership = Membership(
            self._job,
            self._version,
            self._count,
            digest_of(self._options),
            (put(self._program),),
            self._share,
            self._window,
            digests_of(vars(self._program) | self._parts) if self._share else {},
        )
        self._joined_hub()
        if self._refusal:
            raise ValueError(self._refusal)
        threading.Thread(target=self._watch, name="gristmill-ray", daemon=True).start()

    def resize(self, count: int) -> None:
        self._count = count
        if self._membership is not None:
            self._membership = self._membership._replace(actors=count)
        if (hub := self._hub) is not None:
            hub.resize.remote(self._job, count)

    def compute(self, lane: Lane, task: UnitTask) -> TimedResult | WorkerLost | None:
        lost = -1
        for _ in range(MAX_LOST_ANSWERS):
            hub = self._joined_hub()
            if hub is None:
                return None
            try:
                call = hub.compute_unit.remote(
                    self._job, self._lane_number(lane), task, lost
                )
                reply = self._wait_for_reply(call)
            except self._ray.exceptions.RayActorError as error:
                self._drop(hub)
                return WorkerLost(self._name_in_texts(), str(error), blames_unit=False)
            if reply is None:
                return None
            if isinstance(reply, WorkerLost):
                return reply
            if not isinstance(reply, UnitComputed):
                if reply.why:
                    self.failure = reply.why
                    return None
                self._drop(hub)  # This job has to join again.
                continue
            ready_s = time.perf_counter()
            try:
                answer = self._wait_for_reply(reply.answer[0])
            except self._ray.exceptions.ObjectLostError:
                # The node that held the answer was lost.  Have the unit computed again.
                lost = reply.unit
                continue
            if answer is None:
                return None
            return TimedResult(self._actor(reply), ready_s, answer)
        return WorkerLost(
            self._name_in_texts(), "its answers were lost", blames_unit=False
        )

    def activity(self, lane: Lane) -> str:
        no_actor = f"It waits for {self._name_in_texts()}."
        if (hub := self._hub) is None:
            return no_actor
        call = hub.activity.remote(self._job, self._lane_number(lane))
        try:
            return str(self._ray.get(call, timeout=ACTOR_CHECK_S))
        except self._ray.exceptions.RayError:
            return no_actor

    def end_worker(self, lane: Lane) -> None:
        if (hub := self._hub) is not None:
            hub.end_worker.remote(self._job, self._lane_number(lane))

    def close(self, owner: str) -> None:
        self._users.discard(owner)
        if self._users:
            return
        self._closing.set()
        if (hub := self._hub) is not None and self._ray.is_initialized():
            hub.leave.remote(self._job)

    def _name_in_texts(self) -> str:
        return f"the actors named {self._name!r}"

    def _lane_number(self, lane: Lane) -> int:
        if (number := self._lane_numbers.get(lane)) is not None:
            return number
        return self._lane_numbers.setdefault(lane, next(self._next_lane_number))

    def _joined_hub(self) -> Any:
        """Return the hub after it has added this job; None if the pool has ended."""
        with self._lock:
            while self._hub is None and not self._detect_end():
                try:
                    self._join()
                except self._ray.exceptions.RayActorError as error:
                    log.info("%s ended: %s", self._name_in_texts(), error)
            return None if self._detect_end() else self._hub

    def _detect_end(self) -> bool:
        """Return whether the pool has ended; sets `failure` if Ray was shut down."""
        if not self.failure and not self._ray.is_initialized():
            self.failure = "Ray was shut down."
        return bool(self.failure) or self._closing.is_set()

    def _join(self) -> None:
        """Find or start the hub, and add this job; `_lock` is held."""
        actor_class = self._ray.remote(Hub).options(
            name=f"gristmill-{self._name}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_concurrency=MAX_CALLS,
            num_cpus=0,
        )
        hub = actor_class.remote(self._name_in_texts(), self._version, self._options)
        # None: the pool was closed.  Empty: the hub has added the job.
        refusal = self._wait_for_reply(hub.join.remote(self._membership))
        if refusal:
            self._refusal = self.failure = refusal
        elif refusal is not None:
            self._hub = hub

    def _drop(self, hub: Any) -> None:
        """Drop a hub that was lost, or that no longer has this job."""
        with self._lock:
            if self._hub is hub:
                self._hub = None

    def _wait_for_reply(self, reference: Any) -> Any:
        """Wait for a call and return its result; None if the pool is closed first."""
        while not self._closing.is_set():
            if self._ray.wait([reference], timeout=ACTOR_CHECK_S)[0]:
                return self._ray.get(reference)
            if self._hub is None:
                self._progress.update(0, self._count)
        return None

    def _actor(self, reply: UnitComputed) -> Actor:
        """Return the object of the actor that computed a unit."""
        actor = Actor(reply.actor, None, reply.location)
        return self._actors.setdefault(reply.location, actor)

    def _watch(self) -> None:
        """Send heartbeats to the hub, and report the start of actors to the user."""
        while (hub := self._joined_hub()) is not None:
            try:
                status = self._wait_for_reply(hub.heartbeat.remote(self._job))
            except self._ray.exceptions.RayActorError:
                self._drop(hub)
                continue
            if status is None:
                return
            if not status.member:
                self._drop(hub)
            self.failure = self.failure or status.failure
            for location, actor in list(self._actors.items()):
                actor.loss_reason = "" if location in status.locations else "It ended."
            self._progress.update(len(status.locations), status.wanted)
            self._closing.wait(HEARTBEAT_S)
