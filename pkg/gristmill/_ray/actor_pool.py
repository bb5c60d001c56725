"""Starts and watches the actors of one loader, and replaces lost ones.

A thread waits for new actors to start.  Lanes call an actor for each unit, and report
lost actors.  While Ray cannot place an actor, lanes use the running ones.  They use the
new actor as soon as it has started.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from gristmill._engine import packing
from gristmill._engine.stream import Runnable
from gristmill._pool.pool import Lane, TimedResult, WorkerLost
from gristmill._pool.unit_task import UnitTask
from gristmill._ray import metrics
from gristmill._ray.actor import ActorLocation, WorkerActor
from gristmill._ray.actor_entry import ACTOR_CHECK_S, NO_LANE, Actor
from gristmill._ray.start_progress import StartProgress
from gristmill._workers import settings

Reference = TypeVar("Reference")

# The pool gives up after this many failed starts in a row.  MAX_FAILED_STARTS is for
# actors that cannot load the program, MAX_ENDED_STARTS for actors that die, for
# example with their machine.
MAX_FAILED_STARTS = 3
MAX_ENDED_STARTS = 20
# Longest time that the pool's thread waits for actors to start, in s.
POLL_S = 0.25


class ActorPool:
    """Keeps `count` actors.  See `Pool`.

    It counts its users, and ends the actors when the last one has closed it.

    Args:
        program: The program whose streams the actors compute; None if calls name it.
        count: The number of actors.
        options: Arguments of Ray's ``ActorClass.options``.
        reports_progress: Whether to report the progress of starting actors to the user.
    """

    def __init__(
        self,
        program: Runnable | None,
        count: int,
        options: dict[str, Any],
        reports_progress: bool = True,
    ) -> None:
        import ray

        self._ray = ray
        self._reports_progress = reports_progress
        self._program = program
        self._kind = ray.remote(WorkerActor).options(**options)
        # Guards the fields below, and those of the actors.  Some threads read `count`,
        # `failure`, `_closed` and the actors' `loss_reason` without it.  Notified when
        # an actor starts, and when waiting for one may end without success.  Held in
        # all private methods except `_watch`, `_finish_start` and `_is_node_alive`.
        self._changed = threading.Condition()
        # A reference to the program in the object store; None until the first `open`,
        # or if there is no program.
        self._packed: Any = None
        self._settings: list[settings.Setting] = []
        self._users: set[str] = set()
        self.count = count
        # The actors that were requested and are not lost, started or not.
        self._actors: list[Actor] = []
        # Maps the reference of the answer to an actor's first call, `location`, to the
        # actor, until it has answered.
        self._starting: dict[Any, Actor] = {}
        self._failed_starts = self._ended_starts = 0
        self._closed = False
        # The reason why no actor can be started; empty if there is none.
        self.failure = ""
        self._thread = threading.Thread(
            target=self._watch, name="gristmill-ray", daemon=True
        )

    def new_metrics(self) -> metrics.RayMetrics:
        return metrics.RayMetrics()

    def open(self, owner: str) -> None:
        with self._changed:
            is_first = not self._users
            self._users.add(owner)
            if is_first:
                if self._program is not None:
                    self._packed = put(self._program)
                    self._settings = settings.read_settings()
                self._start_missing()
                self._thread.start()

    def resize(self, count: int) -> None:
        with self._changed:
            self.count = count
            self._start_missing()
            # Removes actors that have not started before others.
            actors = sorted(self._actors, key=lambda actor: actor.location is not None)
            for actor in actors[: max(0, len(actors) - count)]:
                actor.lane_at_loss = NO_LANE
                self._remove(actor)
            self._changed.notify_all()

    def compute(self, lane: Lane, task: UnitTask) -> TimedResult | WorkerLost | None:
        started_call = self.call(lane, lambda handle: handle.compute.remote(*task))
        if started_call is None:
            return None
        actor, reference = started_call
        try:
            ready_s, answer = self.wait_for(actor, reference)
        except Exception as error:
            return self.record_failure(lane, actor, error)
        self.record_answer(lane, actor)
        return TimedResult(actor, ready_s, answer)

    def call(
        self, lane: Lane, start_call: Callable[[Any], Reference]
    ) -> tuple[Actor, Reference] | None:
        """Wait for an actor and call it.

        Args:
            lane: The lane that makes the call.
            start_call: Takes the handle of the actor and starts the call.

        Returns:
            The actor, and the reference or references of its answer; None if the pool
            was closed or has failed.
        """
        with self._changed:
            while not self._closed and not self._detect_failure():
                running = [
                    actor for actor in self._actors if actor.location is not None
                ]
                if running:
                    actor = self._choose(lane, running)
                    actor.waiting_lanes.append(lane)
                    return actor, start_call(actor.handle)
                self._changed.wait()
        return None

    def wait_for(self, actor: Actor, reference: Any) -> tuple[float, Any]:
        """Return the time at which an answer was ready, in s, and the answer.

        Stops waiting if another lane has found out that the actor is lost.

        Args:
            actor: The actor that was called.
            reference: The reference of its answer.

        Raises:
            Exception: The call failed, or the actor is lost.
        """
        while True:
            ready, _ = self._ray.wait(
                [reference], timeout=ACTOR_CHECK_S, fetch_local=False
            )
            if ready or actor.loss_reason:
                break
        ready_s = time.perf_counter()
        # The answer is ready, or the actor is lost.  The transfer may take long.
        while True:
            try:
                answer = self._ray.get(reference, timeout=ACTOR_CHECK_S)
            except self._ray.exceptions.GetTimeoutError:
                if actor.loss_reason:
                    raise
            else:
                return ready_s, answer

    def record_answer(self, lane: Lane, actor: Actor) -> None:
        """Record that an actor has answered a lane's call."""
        with self._changed:
            actor.waiting_lanes.remove(lane)

    def record_failure(self, lane: Lane, actor: Actor, error: Any) -> WorkerLost:
        """Record that an actor did not answer, and replace it.

        Args:
            lane: The lane that made the call.
            actor: The actor that was called.
            error: The exception that waiting for the answer raised.
        """
        exceptions = self._ray.exceptions
        # Ray raises the same errors if only the process ended.  Then the node is alive,
        # and the unit may be the cause.
        has_died = isinstance(error, exceptions.ActorDiedError)
        node_lost = isinstance(
            error, (exceptions.RayActorError, exceptions.ObjectLostError)
        )
        if has_died and actor.location is not None and not error.preempted:
            node_lost = not self._is_node_alive(actor.location.node)
        with self._changed:
            if actor.lane_at_loss is None:
                actor.lane_at_loss = NO_LANE if node_lost else actor.waiting_lanes[0]
            if node_lost:
                self._replace_node(actor, str(error))
            else:
                self._replace(actor, str(error))
            call_raised = isinstance(error, exceptions.RayTaskError)
            return WorkerLost(
                actor,
                actor.loss_reason or str(error),
                blames_unit=call_raised or actor.lane_at_loss == lane,
            )

    def end_worker(self, lane: Lane) -> None:
        with self._changed:
            actor = self._actor_of(lane)
            if actor is not None:
                self._replace(actor, "it did not answer, so it was ended")

    def activity(self, lane: Lane) -> str:
        with self._changed:
            actor = self._actor_of(lane)
        return "It waits for an actor." if actor is None else f"It waits for {actor}."

    def locations(self) -> list[ActorLocation]:
        """Return the nodes and processes of the running actors."""
        with self._changed:
            return [
                actor.location for actor in self._actors if actor.location is not None
            ]

    def release_lanes(self, owner: str) -> None:
        """Forget the lanes of an owner that makes no more calls."""
        with self._changed:
            for actor in self._actors:
                actor.lanes = {lane for lane in actor.lanes if lane[0] != owner}

    def drop_program(self, program: str) -> None:
        """Make all actors drop a program."""
        with self._changed:
            for actor in self._actors:
                if actor.location is not None:
                    actor.handle.drop_program.remote(program)

    def close(self, owner: str) -> None:
        with self._changed:
            self._users.discard(owner)
            if self._users:
                return
            self._closed = True
            for actor in list(self._actors):
                self._remove(actor)
            self._changed.notify_all()

    def _actor_of(self, lane: Lane) -> Actor | None:
        return next((actor for actor in self._actors if lane in actor.lanes), None)

    def _replace(self, actor: Actor, why: str) -> None:
        """Start another actor in place of a lost one, unless that was done before."""
        if actor in self._actors:
            actor.loss_reason = why
            metrics.count_lost_actor()
            self._remove(actor)
            self._start_missing()

    def _replace_node(self, actor: Actor, why: str) -> None:
        """Replace all actors of a lost node, without waiting for each to fail."""
        same_node = [
            other
            for other in self._actors
            if other.location
            and actor.location
            and other.location.node == actor.location.node
        ]
        for other in same_node:
            other.lane_at_loss = NO_LANE
            self._replace(other, why)

    def _is_node_alive(self, node: str) -> bool:
        if self._closed or not self._ray.is_initialized():
            return True
        nodes = self._ray.nodes()
        return any(entry["NodeID"] == node and entry["Alive"] for entry in nodes)

    def _choose(self, lane: Lane, running: list[Actor]) -> Actor:
        """Return the lane's own actor, unless another has at least two lanes fewer.

        The actor that is returned becomes the lane's own.
        """
        least_used = min(running, key=lambda actor: len(actor.lanes))
        own = next((actor for actor in running if lane in actor.lanes), None)
        if own is not None and len(own.lanes) - len(least_used.lanes) < 2:
            return own
        if own is not None:
            own.lanes.discard(lane)
        least_used.lanes.add(lane)
        return least_used

    def _start_missing(self) -> None:
        while len(self._actors) < self.count and not self._closed:
            if self._detect_failure():
                return
            used_numbers = {actor.number for actor in self._actors}
            number = min(set(range(self.count)) - used_numbers)
            handle = self._kind.remote(self._packed, self._settings, number, self.count)
            actor = Actor(number, handle)
            self._actors.append(actor)
            self._starting[handle.location.remote()] = actor

    def _detect_failure(self) -> bool:
        """Return whether no actor can be started anymore.

        Sets `failure` if Ray was shut down, since calling Ray would start it again.
        """
        if not self.failure and not self._ray.is_initialized():
            self.failure = "Ray was shut down."
            self._changed.notify_all()
        return bool(self.failure)

    def _remove(self, actor: Actor) -> None:
        """Remove an actor from the pool, and end it."""
        self._actors.remove(actor)
        if actor.location is not None:
            metrics.add_running_actors(-1)
        if self._ray.is_initialized():
            # Lanes that wait for its answer get an exception.
            self._ray.kill(actor.handle)

    def _watch(self) -> None:
        """Wait for actors to start, and report their progress to the user."""
        progress = StartProgress(self._ray)
        while True:
            with self._changed:
                if self._closed or self._detect_failure():
                    return
                pending = list(self._starting)
            ready = self._ray.wait(pending, timeout=POLL_S)[0] if pending else []
            for reference in ready:
                self._finish_start(reference)
            if not pending:
                with self._changed:
                    self._changed.wait(POLL_S)
            if self._reports_progress and not self._closed:
                progress.update(len(self.locations()), self.count)

    def _finish_start(self, reference: Any) -> None:
        """Record that an actor has started, or count a failed start and try again.

        Args:
            reference: The reference of the answer to the actor's first call.
        """
        try:
            location, error = self._ray.get(reference), None
        except Exception as exception:
            location, error = None, exception
        with self._changed:
            actor = self._starting.pop(reference)
            if actor not in self._actors:  # It was removed while it started.
                return
            if error is None:
                actor.location = location
                metrics.add_running_actors(1)
                self._failed_starts = self._ended_starts = 0
            else:
                self._actors.remove(actor)
                self._count_failed_start(error)
                self._start_missing()
            self._changed.notify_all()

    def _count_failed_start(self, error: Any) -> None:
        # An exception of `__init__` counts as an actor that cannot load the program.
        has_died = isinstance(error, self._ray.exceptions.RayActorError)
        if has_died and not error.actor_init_failed:
            self._ended_starts += 1
        else:
            self._failed_starts += 1
        if (
            self._failed_starts >= MAX_FAILED_STARTS
            or self._ended_starts >= MAX_ENDED_STARTS
        ):
            self.failure = f"Ray actors cannot start. The last error was:\n{error}"


def put(program: Runnable) -> Any:
    """Put a program into Ray's object store and return its reference."""
    import ray

    fd = packing.pack(program)
    try:
        packed = np.frombuffer(os.pread(fd, os.fstat(fd).st_size, 0), np.uint8)
    finally:
        os.close(fd)
    return ray.put(packed)
