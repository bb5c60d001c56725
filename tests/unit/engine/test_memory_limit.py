"""Loaders whose outputs are not kept stay within their memory limit."""

import numpy as np
import pytest

import gristmill as g

MIB = 1 << 20
RECORDS = 36
LIMIT = 24 * MIB

pytestmark = pytest.mark.multiprocess


class Wide(g.MapTransform):
    """Returns 2 MiB per record; the outputs of a unit exceed the limit."""

    def map(self, x):
        return np.full(2 * MIB, x, np.uint8)


def loader(workers, operations, **options):
    return g.DataLoader(
        data_source=range(RECORDS),
        sampler=g.IndexSampler(RECORDS, shuffle=True, seed=1, num_epochs=1),
        operations=[Wide(), *operations],
        worker_count=workers,
        memory_limit=LIMIT,
        **options,
    )


def numbers(iterator):
    for output in iterator:
        assert output.min() == output.max()
        yield int(output.flat[0])


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("operations", [[], [g.Batch(1)]], ids=["single", "batches"])
def test_unit_larger_than_the_limit_is_split(workers, operations):
    expected = list(g.IndexSampler(RECORDS, shuffle=True, seed=1, num_epochs=1))
    expected = [metadata.record_key for metadata in expected]
    iterator = iter(loader(workers, operations, streams=2))
    found = numbers(iterator)
    assert [next(found) for _ in range(11)] == expected[:11]
    state = iterator.get_state()
    assert list(found) == expected[11:]
    iterator.set_state(state)
    assert list(numbers(iterator)) == expected[11:]


@pytest.mark.parametrize("workers", [2, 3])
def test_batch_waits_for_memory_of_other_workers(workers):
    batches = loader(workers, [g.Batch(5)], streams=2)
    assert sum(batch.nbytes for batch in batches) == 2 * MIB * RECORDS


class Small(g.MapTransform):
    """Returns 128 KiB per record; three from each of 32 streams exceed the limit."""

    def map(self, x):
        return np.full(MIB // 8, x % 256, np.uint8)


@pytest.mark.parametrize("streams", [2, 32])
def test_open_units_of_many_streams_fit(streams):
    outputs = g.DataLoader(
        data_source=range(640),
        sampler=g.SequentialSampler(640),
        operations=[Small()],
        worker_count=2,
        streams=streams,
        memory_limit=8 * MIB,
    )
    assert list(numbers(outputs)) == [x % 256 for x in range(640)]
