"""How a dataset that is read by index is iterated over."""

import gristmill
from gristmill._dataset import to_iter
from gristmill._engine import reading


class Source:
    """Numbers, which are read in blocks."""

    def __init__(self, length):
        self._length = length
        self.blocks = []

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        raise AssertionError("one was read by itself")

    def __getitems__(self, indices):
        self.blocks.append(len(indices))
        return list(indices)


def test_fast_elements_are_made_in_blocks_also_where_their_speed_is_looked_at(
    monkeypatch,
):
    monkeypatch.setattr(to_iter, "BLOCK_NS", 10**15)
    monkeypatch.setattr(reading, "SLOW_READ_S", 10**6)
    monkeypatch.setattr(reading, "BLOCKS_BETWEEN_PROBES", 2)
    source = Source(1 + 2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 20 * 512)
    dataset = gristmill.MapDataset.source(source).map(lambda x: x)
    elements = list(dataset.to_iter_dataset())
    assert elements == list(range(len(source)))
    assert source.blocks == [2**n for n in range(9)] + 20 * [512]
