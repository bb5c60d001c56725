"""The code of an actor: a worker that computes one unit per call.

It writes units into its own memory.  Ray's object store transfers them to the caller.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from gristmill import _core
from gristmill._engine import worker
from gristmill._pool.unit_server import Slot, UnitServer
from gristmill._pool.unit_task import Bytes, TaskResult, UnitTask
from gristmill._workers import nesting, settings
from gristmill.sources._share import share_among


class ActorLocation(NamedTuple):
    """The node, the node's address and the process id of an actor."""

    node: str
    address: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on node {self.address} ({self.node[:8]})"


class WorkerActor:
    """Computes units of one program or of several.

    `actor_pool.py` makes it a Ray actor.  Ray runs the calls of an actor one at a time.

    Args:
        packed: The program for calls of `compute`, as written by
            `gristmill._engine.packing.pack`.  None if all calls name their program.
        process_settings: The settings of the program's process; empty if calls name
            programs.
        number: The number of this actor in its pool.
        actors: The number of actors that read at the same time.
    """

    def __init__(
        self,
        packed: Bytes | None,
        process_settings: Sequence[settings.Setting],
        number: int,
        actors: int,
    ) -> None:
        nesting.become_worker()
        settings.adopt(process_settings)
        _core.keep_freed_memory()
        # Each actor may have an equal part of the requests in flight to a remote host.
        share_among(actors)
        self._number = number
        self._actors = actors
        # The server of `packed`.
        self._own_server = None if packed is None else self._load_program(packed)
        # The servers of the programs that calls of `compute_of` name.
        self._servers: dict[str, UnitServer] = {}

    def location(self) -> ActorLocation:
        """Return the node and the process of this actor."""
        import ray

        context = ray.get_runtime_context()
        address = ray.util.get_node_ip_address()
        return ActorLocation(context.get_node_id(), address, os.getpid())

    def compute(self, *task: Any) -> TaskResult:
        """Compute a unit of the actor's own program.

        Args:
            task: The fields of a `UnitTask`.
        """
        assert self._own_server is not None
        return self._own_server.answer(UnitTask(*task))

    def compute_of(
        self, name: str, packed: tuple[Any], *task: Any
    ) -> tuple[str, TaskResult | None]:
        """Compute a unit of the program `name`.

        The results are separate objects in Ray's store, so that a caller can read the
        error without fetching the answer.

        Args:
            name: The name of the program.
            packed: The reference of the packed program in Ray's store.
            task: The fields of `UnitTask`.

        Returns:
            The traceback if the program cannot be loaded, else "", and the answer.
        """
        import ray

        if name not in self._servers:
            try:
                self._servers[name] = self._load_program(ray.get(packed[0]))
            except Exception:
                return traceback.format_exc(), None
        return "", self._servers[name].answer(UnitTask(*task))

    def drop_program(self, name: str) -> None:
        """Drop the program `name`, if it is loaded."""
        if server := self._servers.pop(name, None):
            server.close()

    def _load_program(self, packed: Bytes) -> UnitServer:
        # `worker.load` reads a program from a file.
        fd = os.memfd_create("gristmill-program", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(packed.data)
            with nesting.importing():
                program = worker.load(fd)
        finally:
            os.close(fd)
        slot = Slot(program.position_capacity)
        return UnitServer(program, slot, self._number, self._actors)
