"""What asks actors for lanes: the interface of the pools, and what they answer."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

from gristmill._ray.actor import Answer, Home, Task

# How long an answer is waited for before somebody looks whether the actor lives.
LOOK_AT_ACTOR_S = 0.5

# Whoever asks actors, one call at a time.
Lane = tuple[str, int]
NOBODY = ("", -1)


@dataclasses.dataclass(eq=False)
class Actor:
    """An actor, as far as is known."""

    number: int
    handle: Any
    home: Home | None = None
    lost: str = ""
    # Whose it is, and those of them that wait for it: it answers in this order.
    lanes: set[Lane] = dataclasses.field(default_factory=set)
    asked: list[Lane] = dataclasses.field(default_factory=list)
    # The lane whose unit it had in work when it was lost.
    last: Lane | None = None

    def __str__(self) -> str:
        place = "not yet placed" if self.home is None else str(self.home)
        return f"Ray actor {self.number} ({place})"


class Computed(NamedTuple):
    """What a unit came to, and when that was ready where it was computed."""

    actor: Actor
    ready: float
    answer: Answer


class Loss(NamedTuple):
    """A unit that came to nothing.

    Attributes:
        actor: Who was to compute it.
        why: What is known of its end.
        blamed: Whether that may be due to the unit: the actor, and neither its node
            nor the way there, ended, and had this unit in work.
    """

    actor: Any
    why: str
    blamed: bool


class Pool(Protocol):
    """Who has actors for the lanes of a scheduler.  Any threads may call.

    Attributes:
        failure: Why there will be no answer; empty as long as there may be.
    """

    failure: str

    def open(self) -> None:
        """Ask for the actors if nobody did, without waiting for them.

        Raises:
            Exception: Whatever pickling the program raised.
        """

    def compute(self, lane: Lane, task: Task) -> Computed | Loss | None:
        """Have an actor compute; waits for that.  None: there will be no answer."""

    def doing(self, lane: Lane) -> str:
        """What a lane waits for."""

    def end(self, lane: Lane) -> None:
        """End the actor that a lane asks: it does not answer."""

    def resize(self, count: int) -> None:
        """Change how many actors there are; others do again what those that go did."""

    def close(self) -> None:
        """End the actors, unless somebody else has them open."""
