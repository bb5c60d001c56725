"""Batches are placed on a device before they are needed."""

import pytest

import gristmill
from gristmill._engine.device_prefetch import DevicePrefetchIterator


class Placed(DevicePrefetchIterator):
    """Fails to place one batch."""

    def _place(self, batch):
        if batch == 2:
            raise StopIteration
        return batch


@pytest.mark.parametrize("depth", [1, 3])
def test_stopping_place_drops_only_its_batch(depth):
    batches = Placed(range(5), depth)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(RuntimeError, match="device raised StopIteration"):
        next(batches)
    assert list(batches) == [3, 4]


def test_batches_without_a_state_are_placed_ahead():
    batches = Placed(gristmill.IterDataset.from_iterable(lambda: [0, 1]), 2)
    assert next(batches) == 0
    with pytest.raises(TypeError, match=r"has no state.*replay=True"):
        batches.get_state()
    assert list(batches) == [1]
    batches.close()
