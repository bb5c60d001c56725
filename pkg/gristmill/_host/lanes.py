"""The lanes of a rank: threads that have the pool of the host compute units.

`_core.PoolLane` exchanges requests and results with the server, and commits, without
Python.  This module handles everything else that the server sends.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from gristmill import _core
from gristmill._base.types import Int64Array
from gristmill._host import messages
from gristmill._host.client import HostPool
from gristmill._host.membership import UnitLost
from gristmill._host.slot_views import release_after
from gristmill._host.unit_packets import unpack_details
from gristmill._pool.call_metrics import CallTiming
from gristmill._pool.lanes import MAX_LOSSES, Lanes
from gristmill._pool.pool import Lane


class HostLanes(Lanes[HostPool]):
    """Lanes of one scheduler."""

    def __init__(self, scheduler: _core.Scheduler, pool: HostPool) -> None:
        super().__init__(scheduler, pool)
        self._results = _core.PoolResults()
        self._arrived: list[tuple[int, int, int, float, float, bytes]] = []
        # Held while results move from `_results` by way of `_arrived` to `_payloads`.
        self._results_lock = threading.Lock()

    def receive(self, due: _core.NextResult) -> tuple[Any, Int64Array]:
        """See `Lanes.receive`."""
        self._take_results()
        return super().receive(due)

    def _serve(self, lane: int, generation: int) -> bool:
        """See `Lanes._serve`."""
        end = _core.PoolLane(
            self._arena_fd, self._notify_fd, lane, generation, self._results
        )
        self._scheduler.on_started(lane, generation, self._owner_pid)
        losses = served = 0
        while losses < MAX_LOSSES:
            loss = self._exchange(end, self._lane_id(lane))
            if not isinstance(loss, UnitLost):
                return loss
            losses = losses + 1 if end.served == served else 1
            served = end.served
            self.loss_reports[lane] = loss.report
            if loss.blames_unit:
                return False
        return False

    def _exchange(self, end: _core.PoolLane, lane: Lane) -> UnitLost | bool:
        """Exchange requests and results with a server.

        Returns:
            The loss of the unit that the lane holds; True after the last unit; False if
            the pool was closed or has failed.
        """
        connected = self.pool.connect(lane)
        if connected is None or isinstance(connected, UnitLost):
            return connected or False
        membership, connection = connected
        sends = True
        while True:
            event, packet = end.serve(connection.fileno(), membership.number, sends)
            self._take_results()
            sends = False
            if event == "stop":
                return True
            if event == "request":
                # If the server is gone, its last message may still wait.
                with contextlib.suppress(ConnectionError):
                    messages.send_packet(connection, self.pool.prepare(packet))
            elif (loss := self.pool.handle(membership, lane, packet)) is not None:
                return loss

    def _take_results(self) -> None:
        """Make views of the results that have arrived.

        A lane refers to the memory of a server until it has called this.  A signal may
        interrupt the loop; the next call goes on.
        """
        with self._results_lock:
            self._arrived += self._results.take()
            while self._arrived:
                self._add_result(*self._arrived[0])
                del self._arrived[0]
            if self._closing:  # `close` may have missed them.
                self._payloads.clear()

    def _add_result(
        self,
        stream: int,
        unit: int,
        server: int,
        start_s: float,
        arrival_s: float,
        packed: bytes,
    ) -> None:
        """Make a view of a result, unless an interrupted call has made one."""
        details = unpack_details(packed)
        payload, release, process = self.pool.take(server, details)
        payload = self._payloads.add_once(stream, details.unit, unit, payload)
        release_after(payload, release)
        call = CallTiming(
            start_s,
            details.ready_s,
            arrival_s,
            details.outputs,
            details.used,
            details.load,
        )
        self.metrics.record_call(process, call)
