"""The interface between lanes and pools of actors, and the results of the pools."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

from gristmill._ray.actor import ActorLocation, TaskResult, UnitTask

# Time between checks of whether a called actor is alive, in s.
ACTOR_CHECK_S = 0.5

# The name of a lane's owner, and the number of the lane within it.  A lane is a caller
# that makes one call at a time.
Lane = tuple[str, int]
NO_LANE = ("", -1)


@dataclasses.dataclass(eq=False)
class Actor:
    """An actor, from the request to start it until it is lost.

    The lock of its `ActorPool` guards the fields that change.  A `HubPool` has no lock
    for them, and changes only `loss_reason`.

    Attributes:
        number: Its number in the pool.
        handle: Ray's handle; None in a `HubPool`, which does not call actors.
        location: Its node and process; None until it has started.
        loss_reason: The reason why it was lost; empty while it is alive.
        lanes: The lanes that use this actor.
        waiting_lanes: The lanes that wait for its answers, in the order in which it
            answers.
        lane_at_loss: The lane whose unit it was computing when it was lost; NO_LANE if
            its node was lost, or the pool had too many actors.  None until it was
            removed from the pool or a call of it failed.
    """

    number: int
    handle: Any
    location: ActorLocation | None = None
    loss_reason: str = ""
    lanes: set[Lane] = dataclasses.field(default_factory=set)
    waiting_lanes: list[Lane] = dataclasses.field(default_factory=list)
    lane_at_loss: Lane | None = None

    def __str__(self) -> str:
        place = "not yet placed" if self.location is None else str(self.location)
        return f"Ray actor {self.number} ({place})"


class TimedResult(NamedTuple):
    """A unit that was computed.

    Attributes:
        actor: The actor that computed it.
        ready_s: The time at which the result was ready, before its transfer, by
            `time.perf_counter`.
        result: The result.
    """

    actor: Actor
    ready_s: float
    result: TaskResult


class ActorLost(NamedTuple):
    """A unit that was not computed because its actor was lost.

    Attributes:
        actor: The lost actor, or text that names it.
        why: The reason for the loss, as far as known.
        blames_unit: Whether the unit may be the cause.  False if the actor was
            computing another unit, or if its node or the connection to it was lost.
    """

    actor: Any
    why: str
    blames_unit: bool


class Pool(Protocol):
    """Provides actors for the lanes of a scheduler.  Any threads may call it.

    Attributes:
        failure: The reason why no more answers will come; empty if there is none.
    """

    failure: str

    def open(self) -> None:
        """Start the actors if no user has opened the pool yet; does not wait for them.

        Raises:
            Exception: The program cannot be pickled.
        """

    def compute(self, lane: Lane, task: UnitTask) -> TimedResult | ActorLost | None:
        """Have an actor compute a unit and wait for it.

        Returns:
            The result, or a report of the loss; None if no result will come, because
            the pool was closed or has failed.
        """

    def activity(self, lane: Lane) -> str:
        """Return a sentence about what a lane waits for."""

    def end_actor(self, lane: Lane) -> None:
        """End the actor that a lane calls, because it does not answer."""

    def resize(self, count: int) -> None:
        """Change the number of actors; other actors redo the units of removed ones."""

    def close(self) -> None:
        """End the actors, unless another user has the pool open."""
