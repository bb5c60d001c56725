"""Loaders with filters: the records that they read for an output."""

import pytest

import gristmill as grain


class Remembering:
    """Serves numbers and records which keys were read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return 1000

    def __getitem__(self, key):
        self.read.append(key)
        return key


class RememberingBlocks(Remembering):
    def __getitems__(self, keys):
        return [self[key] for key in keys]


class Third(grain.FilterTransform):
    def filter(self, element):
        return element % 3 == 0


@pytest.mark.parametrize("kind", [Remembering, RememberingBlocks])
def test_filtered_batch_reads_no_further_than_needed(kind):
    source = kind()
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.SequentialSampler(1000),
        operations=[Third(), grain.Batch(8)],
        read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
    )
    iterator = iter(loader)
    for number in range(1, 6):
        batch = next(iterator)
        last = 24 * number - 3
        assert batch.tolist() == [*range(last - 21, last + 1, 3)]
        assert source.read == [*range(last + 1)]


def test_state_within_a_filtered_stream_resumes():
    def loader():
        return grain.DataLoader(
            data_source=range(1000),
            sampler=grain.IndexSampler(1000, shuffle=True, seed=3, num_epochs=1),
            operations=[Third(), grain.Batch(7)],
        )

    whole = [batch.tolist() for batch in loader()]
    iterator = iter(loader())
    for taken in range(1, len(whole)):
        next(iterator)
        again = iter(loader())
        again.set_state(iterator.get_state())
        assert [batch.tolist() for batch in again] == whole[taken:]
