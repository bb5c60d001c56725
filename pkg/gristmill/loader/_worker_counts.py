"""The numbers of workers in the states of a `DataLoader`, and for other packages."""

from __future__ import annotations

from gristmill._engine import compilation
from gristmill.options import MultiprocessingOptions
from gristmill.sharding import ShardOptions


class WorkerCounts:
    """A base of `DataLoader` with the numbers of workers that others read."""

    _program: compilation.LoaderProgram
    _multiprocessing_options: MultiprocessingOptions
    _shard_options: ShardOptions

    @property
    def _local_num_workers(self) -> int:
        # Other packages read this and the next property, private names of Grain.
        return max(self._worker_count_of_states, 1)

    @property
    def _worker_count_of_states(self) -> int:
        """The number of workers in states.

        With "auto" it is the number of streams, which have the order of as many
        workers.
        """
        count = self._multiprocessing_options.num_workers
        return self._program.streams if count == "auto" else count

    @property
    def _global_num_workers(self) -> int:
        return self._local_num_workers * self._shard_options.shard_count
