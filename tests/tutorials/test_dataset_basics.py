"""The tutorial about the basics of datasets."""

import itertools

import numpy as np
import pytest

SHUFFLED = [[6, 7], [2, 8], [3, 5], [1, 4]]


def as_lists(batches):
    return [batch.tolist() for batch in batches]


@pytest.fixture
def dataset(grain):
    """Return eight shuffled numbers in batches of two, from a user's source."""

    class Numbers(grain.sources.RandomAccessDataSource):
        def __init__(self):
            self._numbers = list(range(8))

        def __len__(self):
            return len(self._numbers)

        def __getitem__(self, index):
            return self._numbers[index]

    return (
        grain.MapDataset.source(Numbers())
        .shuffle(seed=10)
        .map(lambda x: x + 1)
        .batch(batch_size=2)
    )


@pytest.mark.parametrize("of", ["source", "range"])
def test_chain_is_read_by_position_and_by_iteration(grain, of):
    if of == "source":
        start = grain.MapDataset.source(list(range(11)))
    else:
        start = grain.MapDataset.range(11)
    dataset = start.shuffle(seed=10).map(lambda x: x + 1).batch(batch_size=2)
    np.testing.assert_array_equal(dataset[0], np.array([6, 11]))
    assert as_lists(dataset) == [[6, 11], [2, 10], [3, 5], [1, 4], [8, 9], [7]]


def test_source_needs_a_length_and_positions(dataset):
    assert dataset[0].tolist() == [6, 7]
    assert as_lists(dataset) == SHUFFLED


def test_position_past_the_end_belongs_to_the_next_epoch(dataset):
    third = dataset[len(dataset) + 2]
    assert third.tolist() == [7, 3]
    assert (third == dataset[2]).tolist() == [False, False]


def test_epochs_are_equal_without_randomness(grain):
    dataset = grain.MapDataset.range(8).map(lambda x: x + 1).batch(2)
    assert dataset[len(dataset) + 2].tolist() == dataset[2].tolist()


def test_filter_leaves_none_at_its_positions(dataset):
    even = dataset.filter(lambda e: (e[0] + e[1]) % 2 == 0)
    assert len(even) == 4
    found = [even[i] for i in range(len(even))]
    assert found[0] is None and found[3] is None
    assert as_lists(found[1:3]) == [[2, 8], [3, 5]]


def test_slice_takes_a_share_of_a_distributed_run(dataset):
    share = dataset[0::2]
    assert len(share) == 2
    assert share[0].tolist() == [6, 7]
    assert share[1].tolist() == [3, 5]


def test_read_options_do_not_change_the_elements(grain, dataset):
    options = grain.ReadOptions(num_threads=16, prefetch_buffer_size=500)
    assert as_lists(dataset[0::2].to_iter_dataset(options)) == [[6, 7], [3, 5]]


def test_iterated_dataset_can_batch_after_a_filter(grain):
    even = grain.MapDataset.range(10).filter(lambda x: x % 2 == 0)
    assert as_lists(even.to_iter_dataset().batch(2)) == [[0, 2], [4, 6], [8]]


def test_indexed_dataset_cannot_batch_after_a_filter(grain):
    even = grain.MapDataset.range(10).filter(lambda x: x % 2 == 0)
    with pytest.raises(ValueError, match=r"batch` can not follow `MapDataset.filter"):
        even.batch(2)


def test_conversion_keeps_absent_elements_on_request(grain):
    even = grain.MapDataset.range(4).filter(lambda x: x % 2 == 0)
    assert list(even.to_iter_dataset(allow_nones=True)) == [0, None, 2, None]


def test_iterator_goes_back_to_a_checkpoint(grain, dataset):
    iterator = iter(dataset)
    assert isinstance(iterator, grain.DatasetIterator)
    assert next(iterator).tolist() == [6, 7]
    checkpoint = iterator.get_state()
    assert checkpoint == {"next_index": 1}
    assert next(iterator).tolist() == [2, 8]
    iterator.set_state(checkpoint)
    assert next(iterator).tolist() == [2, 8]


def test_both_kinds_of_dataset_apply_the_same_steps(grain):
    def add(x, rng):
        return x + int(rng.integers(100))

    by_position = grain.MapDataset.range(6).random_map(add, seed=3).map(lambda x: -x)
    by_turn = (
        grain.MapDataset.range(6)
        .to_iter_dataset()
        .random_map(add, seed=3)
        .map(lambda x: -x)
    )
    expected = [-65, -59, -35, -59, -92, -29]
    assert list(by_position) == expected
    assert list(by_turn) == expected
    assert list(itertools.islice(by_position, 2)) == expected[:2]
