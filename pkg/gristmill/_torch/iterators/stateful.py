"""Iterators of the stateful loader, which return their states."""

from __future__ import annotations

from gristmill._torch.iterators.multi_process import MultiProcessIterator
from gristmill._torch.iterators.single_process import SingleProcessIterator
from gristmill._torch.layout import State
from gristmill._torch.resume.epoch_position import SingleProcessPosition
from gristmill._torch.resume.workers_position import WorkersPosition


class StatefulSingleProcessIterator(SingleProcessIterator):
    """Computes batches in the calling thread, and returns its state."""

    _position: SingleProcessPosition

    def state_dict(self) -> State:
        """Return the iterator's state in torchdata's layout."""
        return self._position.state(self)


class StatefulMultiProcessIterator(MultiProcessIterator):
    """Yields batches that worker processes compute, and returns its state."""

    _position: WorkersPosition

    def state_dict(self) -> State:
        """Return the iterator's state in torchdata's layout."""
        return self._position.state(self, None if self._shutdown else self._ask_each)
