"""The record of an actor that a pool has requested."""

from __future__ import annotations

import dataclasses
from typing import Any

from gristmill._pool.pool import Lane
from gristmill._ray.actor import ActorLocation

# Time between checks of whether a called actor is alive, in s.
ACTOR_CHECK_S = 0.5
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
