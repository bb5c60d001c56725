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
from gristmill._ray import metrics
from gristmill._ray.actor import Home, Task, WorkerActor
from gristmill._ray.pool import (
    LOOK_AT_ACTOR_S,
    NOBODY,
    Actor,
    Computed,
    Lane,
    Loss,
)
from gristmill._ray.progress import Progress
from gristmill._workers import settings

Reference = TypeVar("Reference")

# The pool gives up after this many failed starts in a row.  MOST_FAILED_STARTS is for
# actors that cannot load the program, MOST_ENDED_STARTS for actors that die, for
# example with their machine.
MOST_FAILED_STARTS = 3
MOST_ENDED_STARTS = 20
POLL_S = 0.25


class ActorPool:
    """Keeps `count` actors.  See `Pool`.

    It counts its users, and ends the actors when the last one has closed it.

    Args:
        program: The program whose streams the actors compute; None if calls name it.
        count: The number of actors.
        options: Arguments of Ray's ``ActorClass.options``.
        telling: Whether to report the progress of starting actors to the user.
    """

    def __init__(
        self,
        program: Runnable | None,
        count: int,
        options: dict[str, Any],
        telling: bool = True,
    ) -> None:
        import ray

        self._ray = ray
        self._telling = telling
        self._program = program
        # A reference to the program in the object store.
        self._packed: Any = None
        self._settings: list[settings.Setting] = []
        self._users = 0
        self.count = count
        self._kind = ray.remote(WorkerActor).options(**options)
        self._changed = threading.Condition()
        self._actors: list[Actor] = []
        # The keys are the references of the answers to the actors' first calls.
        self._starting: dict[Any, Actor] = {}
        self._failed_starts = self._ended_starts = 0
        self._closed = False
        # The reason why no actor can be started; empty if there is none.
        self.failure = ""
        self._thread = threading.Thread(
            target=self._watch, name="gristmill-ray", daemon=True
        )

    def open(self) -> None:
        with self._changed:
            self._users += 1
            if self._users == 1:
                if self._program is not None:
                    self._packed = put(self._program)
                    self._settings = settings.read_settings()
                self._fill()
                self._thread.start()

    def resize(self, count: int) -> None:
        with self._changed:
            self.count = count
            self._fill()
            spare = [actor for actor in self._actors if actor.home is None]
            spare += [actor for actor in self._actors if actor.home is not None]
            for actor in spare[: max(0, len(spare) - count)]:
                actor.last = NOBODY
                self._forget(actor)
            self._changed.notify_all()

    def compute(self, lane: Lane, task: Task) -> Computed | Loss | None:
        called = self.call(lane, lambda handle: handle.compute.remote(*task))
        if called is None:
            return None
        actor, reference = called
        try:
            ready, answer = self.waited_for(actor, reference)
        except Exception as error:
            return self.failed(lane, actor, error)
        self.answered(lane, actor)
        return Computed(actor, ready, answer)

    def call(
        self, lane: Lane, ask: Callable[[Any], Reference]
    ) -> tuple[Actor, Reference] | None:
        """Wait for an actor and call it.

        Args:
            lane: The lane that makes the call.
            ask: Takes the handle of the actor and starts the call.

        Returns:
            The actor, and the reference or references of its answer; None if the pool
            was closed or has failed.
        """
        with self._changed:
            while not self._closed and not self._failed():
                ready = [actor for actor in self._actors if actor.home is not None]
                if ready:
                    actor = self._chosen(lane, ready)
                    actor.asked.append(lane)
                    return actor, ask(actor.handle)
                self._changed.wait()
        return None

    def waited_for(self, actor: Actor, reference: Any) -> tuple[float, Any]:
        """Return the time at which an answer was ready, and the answer.

        Stops waiting if another lane has found out that the actor is lost.

        Args:
            actor: The actor that was called.
            reference: The reference of its answer.

        Raises:
            Exception: The call failed, or the actor is lost.
        """

        def wait() -> bool:
            return not self._ray.wait(
                [reference], timeout=LOOK_AT_ACTOR_S, fetch_local=False
            )[0]

        while wait() and not actor.lost:
            pass
        ready = time.perf_counter()
        while True:
            try:
                answer = self._ray.get(reference, timeout=LOOK_AT_ACTOR_S)
            except self._ray.exceptions.GetTimeoutError:
                if actor.lost:
                    raise
            else:
                return ready, answer

    def answered(self, lane: Lane, actor: Actor) -> None:
        """Record that an actor has answered a lane's call."""
        with self._changed:
            actor.asked.remove(lane)

    def failed(self, lane: Lane, actor: Actor, error: Any) -> Loss:
        """Record that an actor did not answer, and replace it.

        Args:
            lane: The lane that made the call.
            actor: The actor that was called.
            error: The exception that waiting for the answer raised.
        """
        exceptions = self._ray.exceptions
        ended = isinstance(error, exceptions.ActorDiedError)
        far = isinstance(error, (exceptions.RayActorError, exceptions.ObjectLostError))
        if ended and actor.home is not None and not error.preempted:
            far = not self._is_alive(actor.home.node)
        with self._changed:
            if actor.last is None:
                actor.last = NOBODY if far else actor.asked[0]
            if far:
                self._lose_node(actor, str(error))
            else:
                self._lose(actor, str(error))
            raised = isinstance(error, exceptions.RayTaskError)
            return Loss(actor, actor.lost or str(error), raised or actor.last == lane)

    def end(self, lane: Lane) -> None:
        with self._changed:
            actor = self._asked_by(lane)
            if actor is not None:
                self._lose(actor, "it did not answer and was ended")

    def doing(self, lane: Lane) -> str:
        with self._changed:
            actor = self._asked_by(lane)
        return "It waits for an actor." if actor is None else f"It asks {actor}."

    def homes(self) -> list[Home]:
        """Return the nodes and processes of the running actors."""
        with self._changed:
            return [actor.home for actor in self._actors if actor.home is not None]

    def let_go(self, owner: str) -> None:
        """Forget the lanes of an owner that makes no more calls."""
        with self._changed:
            for actor in self._actors:
                actor.lanes = {lane for lane in actor.lanes if lane[0] != owner}

    def forget(self, program: str) -> None:
        """Make all actors drop a program."""
        with self._changed:
            for actor in self._actors:
                if actor.home is not None:
                    actor.handle.forget.remote(program)

    def close(self) -> None:
        with self._changed:
            self._users -= 1
            if self._users:
                return
            self._closed = True
            for actor in list(self._actors):
                self._forget(actor)
            self._changed.notify_all()

    def _asked_by(self, lane: Lane) -> Actor | None:
        return next((actor for actor in self._actors if lane in actor.lanes), None)

    def _lose(self, actor: Actor, why: str) -> None:
        if actor in self._actors:
            actor.lost = why
            metrics.lost()
            self._forget(actor)
            self._fill()

    def _lose_node(self, actor: Actor, why: str) -> None:
        """Replace all actors of a lost node, without waiting for each to fail."""
        there = [
            other
            for other in self._actors
            if other.home and actor.home and other.home.node == actor.home.node
        ]
        for other in there:
            other.last = NOBODY
            self._lose(other, why)

    def _is_alive(self, node: str) -> bool:
        if self._closed or not self._ray.is_initialized():
            return True
        nodes = self._ray.nodes()
        return any(one["NodeID"] == node and one["Alive"] for one in nodes)

    def _chosen(self, lane: Lane, ready: list[Actor]) -> Actor:
        """Return the lane's own actor, unless another has at least two lanes fewer."""
        best = min(ready, key=lambda actor: len(actor.lanes))
        own = next((actor for actor in ready if lane in actor.lanes), None)
        if own is not None and len(own.lanes) - len(best.lanes) < 2:
            return own
        if own is not None:
            own.lanes.discard(lane)
        best.lanes.add(lane)
        return best

    def _fill(self) -> None:
        while len(self._actors) < self.count and not self._closed:
            if self._failed():
                return
            taken = {actor.number for actor in self._actors}
            number = min(set(range(self.count)) - taken)
            handle = self._kind.remote(self._packed, self._settings, number, self.count)
            actor = Actor(number, handle)
            self._actors.append(actor)
            self._starting[handle.home.remote()] = actor

    def _failed(self) -> bool:
        """Return whether no actor can be started anymore.

        Checks whether Ray was shut down, since calling it would start it again.
        """
        if not self.failure and not self._ray.is_initialized():
            self.failure = "Ray was shut down."
            self._changed.notify_all()
        return bool(self.failure)

    def _forget(self, actor: Actor) -> None:
        self._actors.remove(actor)
        if actor.home is not None:
            metrics.started(-1)
        if self._ray.is_initialized():
            # Lanes that wait for its answer get an exception.
            self._ray.kill(actor.handle)

    def _watch(self) -> None:
        """Wait for actors to start, and report their progress to the user."""
        progress = Progress(self._ray)
        while True:
            with self._changed:
                if self._closed or self._failed():
                    return
                waiting = list(self._starting)
            started = self._ray.wait(waiting, timeout=POLL_S)[0] if waiting else []
            for reference in started:
                self._admit(reference)
            if not waiting:
                with self._changed:
                    self._changed.wait(POLL_S)
            if self._telling and not self._closed:
                progress.look(len(self.homes()), self.count)

    def _admit(self, reference: Any) -> None:
        try:
            home, error = self._ray.get(reference), None
        except Exception as raised:
            home, error = None, raised
        with self._changed:
            actor = self._starting.pop(reference)
            if actor not in self._actors:
                return
            if error is None:
                actor.home = home
                metrics.started(1)
                self._failed_starts = self._ended_starts = 0
            else:
                self._actors.remove(actor)
                self._count_start(error)
                self._fill()
            self._changed.notify_all()

    def _count_start(self, error: Any) -> None:
        ended = isinstance(error, self._ray.exceptions.RayActorError)
        if ended and not error.actor_init_failed:
            self._ended_starts += 1
        else:
            self._failed_starts += 1
        if (
            self._failed_starts >= MOST_FAILED_STARTS
            or self._ended_starts >= MOST_ENDED_STARTS
        ):
            self.failure = f"Ray actors cannot start. The last one said:\n{error}"


def put(program: Runnable) -> Any:
    """Put a program into Ray's object store and return its reference."""
    import ray

    fd = packing.pack(program)
    try:
        packed = np.frombuffer(os.pread(fd, os.fstat(fd).st_size, 0), np.uint8)
    finally:
        os.close(fd)
    return ray.put(packed)
