"""The workers of a torch loader that uses the pool of its host."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

import numpy as np

from gristmill import _core
from gristmill._engine.workers import Workers
from gristmill._host.backend import HostWorkers
from gristmill._host.client import HostPool
from gristmill._host.lanes import HostLanes
from gristmill._host.mode import Mode
from gristmill._host.pooled_fetch import (
    START,
    PooledFetchProgram,
    PooledProgramPickle,
    digest_after,
)
from gristmill._host.unit_packets import pack_task, unpack_task
from gristmill._pool.lanes import PoolLanes
from gristmill._torch.indices import requests


@dataclasses.dataclass(frozen=True)
class TorchHostWorkers(HostWorkers):
    """Workers of a pool, for a torch loader's `FetchProgram`."""

    def workers(
        self, scheduler: _core.Scheduler, program: Any, before: Workers | None
    ) -> Workers:
        """Return a scheduler's workers; see `WorkerBackend`."""
        # Only ranks that read the same outputs have them computed once.
        run = "" if self.options.mode is Mode.BROADCAST else secrets.token_hex(8)
        fields = dataclasses.fields(program)
        values = {field.name: getattr(program, field.name) for field in fields}
        pooled: Any = PooledFetchProgram(**values, run=run)
        base: Any = PooledProgramPickle(dataclasses.replace(pooled, states=()))
        pool = RequestPool(
            base, pooled, self.part, self.worker_count, self.options, self.parts
        )
        return PoolLanes(HostLanes(scheduler, pool))


class RequestPool(HostPool):
    """A `HostPool` whose requests have digests, see `pooled_fetch`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # For each stream, the number of the last request, and the digests before and
        # after it.  A stream has one lane, so one thread uses each value.
        self._digests: dict[int, tuple[int, int, int]] = {}

    def prepare(self, request: bytes) -> bytes:
        """See `HostPool.prepare`."""
        task = unpack_task(request)
        words = np.array(task.position_before, np.int64)
        words = requests.read_if_in_file(words)
        number, before, after = self._digests.get(task.stream, (-1, START, START))
        if number != task.request:  # Not another attempt.
            before, after = after, digest_after(after, words)
            self._digests[task.stream] = task.request, before, after
        position = before, after, *words.tolist()
        return pack_task(task._replace(position_before=position, request=after))
