"""Batches that are placed on a device ahead of need."""

import pytest

from gristmill._engine.ahead import Ahead


class Placed(Ahead):
    """Fails to place one batch."""

    def _place(self, batch):
        if batch == 2:
            raise StopIteration
        return batch


@pytest.mark.parametrize("depth", [1, 3])
def test_place_that_stops_costs_its_batch_only(depth):
    batches = Placed(range(5), depth)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(RuntimeError, match="device raised StopIteration"):
        next(batches)
    assert list(batches) == [3, 4]
