"""The examples of Grain's API reference."""

import functools
import sys

import numpy as np
import pytest


@pytest.fixture(params=["by position", "by turn"])
def five(grain, request):
    """Return 0 to 4 as a dataset of either kind."""
    dataset = grain.MapDataset.range(5)
    return dataset if request.param == "by position" else dataset.to_iter_dataset()


def lists(batches):
    return [batch.tolist() for batch in batches]


def test_source_takes_any_sequence(grain):
    assert list(grain.MapDataset.source([1, 2, 3, 4, 5])) == [1, 2, 3, 4, 5]
    assert list(grain.MapDataset.source(("a", "b"))) == ["a", "b"]


def test_range_counts_like_the_builtin(grain):
    assert list(grain.MapDataset.range(3, 11, 4)) == [3, 7]
    assert list(grain.MapDataset.range(5, 0, -2)) == [5, 3, 1]


def test_indexed_mix_stops_before_the_shorter_part_would(grain):
    parts = [grain.MapDataset.range(5), grain.MapDataset.range(7, 10)]
    assert list(grain.MapDataset.mix(parts)) == [0, 7, 1, 8, 2, 9]


def test_iterated_mix_stops_at_the_end_of_the_shorter_part(grain):
    parts = [
        grain.MapDataset.range(5).to_iter_dataset(),
        grain.MapDataset.range(7, 10).to_iter_dataset(),
    ]
    assert list(grain.IterDataset.mix(parts)) == [0, 7, 1, 8, 2, 9, 3]


def test_concatenate_gives_one_part_after_the_other(grain):
    parts = [grain.MapDataset.range(3), grain.MapDataset.range(3, 8)]
    assert list(grain.MapDataset.concatenate(parts)) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_select_uses_a_selection_map(grain, grain_python):
    class Every(grain_python.DatasetSelectionMap):
        """Three elements of the first dataset and two of the second one, backwards."""

        def __len__(self):
            return 5

        def __getitem__(self, index):
            return (0, index) if index < 3 else (1, 4 - index)

    parts = [grain.MapDataset.range(3), grain.MapDataset.range(10, 12)]
    selected = grain.MapDataset.select_from_datasets(parts, Every())
    assert list(selected) == [0, 1, 2, 11, 10]


def test_apply_takes_several_transformations(grain, five):
    class AddOne(grain.transforms.Map):
        def map(self, x):
            return x + 1

    applied = five.apply([AddOne(), grain.transforms.Batch(2)])
    assert lists(applied) == [[1, 2], [3, 4], [5]]


def test_batch_keeps_a_smaller_last_one(five):
    assert lists(five.batch(batch_size=2)) == [[0, 1], [2, 3], [4]]
    assert lists(five.batch(batch_size=2, drop_remainder=True)) == [[0, 1], [2, 3]]


def test_filter_keeps_elements_accepted_by_a_function(grain, five):
    assert list(five.filter(lambda x: x % 2 == 0)) == [0, 2, 4]
    by_position = grain.MapDataset.range(5).filter(lambda x: x % 2 == 0)
    assert by_position[2] == 2
    assert by_position[1] is None


def test_map_changes_each_element(five):
    assert list(five.map(lambda x: x + 10)) == [10, 11, 12, 13, 14]


def test_map_with_index_numbers_elements(grain, five):
    named = grain.MapDataset.source(["a", "b", "c", "d"])
    named = named.map_with_index(lambda i, x: x + str(i))
    assert list(named) == ["a0", "b1", "c2", "d3"]
    powers = five.map_with_index(lambda i, x: (i, 2**x))
    assert list(powers) == [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16)]


def test_random_map_draws_from_a_generator(five):
    drawn = five.seed(1).random_map(lambda x, rng: x + int(rng.integers(5, 10)))
    assert set(drawn) <= set(range(5, 15))
    assert list(drawn) == list(drawn)


def test_random_steps_need_a_seed(grain, five):
    with pytest.raises(ValueError, match="seed"):
        list(five.random_map(lambda x, rng: x))
    with pytest.raises(ValueError, match="seed"):
        grain.MapDataset.range(5).shuffle()


def test_shuffle_permutes(grain):
    shuffled = grain.MapDataset.range(5).seed(42).shuffle()
    assert list(shuffled) == [1, 3, 4, 2, 0]
    assert set(shuffled) == {0, 1, 2, 3, 4}


def test_slice_is_also_written_as_a_subscript(grain):
    dataset = grain.MapDataset.range(5)
    assert list(dataset.slice(slice(1, 3))) == [1, 2]
    assert list(dataset.slice(slice(1, None, 2))) == [1, 3]
    assert list(dataset[1:10:2]) == [1, 3]


def test_repeat_is_finite_or_endless(grain):
    dataset = grain.MapDataset.range(5)
    assert list(dataset.repeat(2)) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    endless = dataset.repeat()
    assert len(endless) == sys.maxsize
    assert endless[11111] == 1


def test_limit_stops_early(grain):
    dataset = grain.MapDataset.range(5).to_iter_dataset()
    assert list(grain.experimental.LimitIterDataset(dataset, 2)) == [0, 1]


def test_batch_and_pad_fills_the_last_batch(grain):
    pad = functools.partial(grain.experimental.batch_and_pad, batch_size=3)
    dataset = grain.MapDataset.range(1, 5).batch(3, batch_fn=pad)
    assert lists(dataset) == [[1, 2, 3], [4, 0, 0]]


def test_seed_of_a_pipeline_gives_each_step_its_own(grain):
    dataset = grain.MapDataset.range(6).seed(1).shuffle().shuffle()
    assert list(dataset) == [3, 2, 0, 1, 4, 5]
    assert list(dataset) != list(grain.MapDataset.range(6).seed(2).shuffle().shuffle())


def test_options_can_forbid_filtering_too_much(grain):
    dataset = grain.MapDataset.range(1000).filter(lambda x: x % 2 == 0)
    options = grain.experimental.DatasetOptions(filter_raise_threshold_ratio=0.1)
    dataset = grain.experimental.WithOptionsIterDataset(
        dataset.to_iter_dataset(), options
    )
    with pytest.raises(ValueError, match=r"skipped 50\.00 %"):
        list(dataset)


def test_explicit_options_win_in_a_merge(grain):
    first = grain.experimental.DatasetOptions(min_shm_size=1024)
    second = grain.experimental.DatasetOptions(
        min_shm_size=512, filter_warn_threshold_ratio=None
    )
    merged = first.merge(second)
    assert merged.min_shm_size == 1024
    assert merged.filter_warn_threshold_ratio is None


def test_concat_then_split_cuts_the_stream_at_the_length(grain):
    elements = [{"x": np.full(n, n)} for n in (3, 2, 4)]
    packed = grain.experimental.ConcatThenSplitIterDataset(
        grain.MapDataset.source(elements).to_iter_dataset(), length_struct={"x": 4}
    )
    rows = list(packed)
    assert lists(row["x"] for row in rows) == [
        [3, 3, 3, 2],
        [2, 4, 4, 4],
        [4, 0, 0, 0],
    ]
    assert lists(row["x_positions"] for row in rows) == [
        [0, 1, 2, 0],
        [0, 0, 1, 2],
        [0, 0, 0, 0],
    ]
    assert lists(row["x_segment_ids"] for row in rows) == [
        [1, 1, 1, 2],
        [1, 2, 2, 2],
        [1, 0, 0, 0],
    ]


def test_zip_pairs_elements(grain):
    parts = [grain.MapDataset.range(3), grain.MapDataset.range(10, 13)]
    zipped = grain.experimental.ZipMapDataset(parts)
    assert list(zipped) == [(0, 10), (1, 11), (2, 12)]


def test_stage_timing_is_an_option_of_a_dataset(grain):
    mode = grain.experimental.ExecutionTrackingMode.STAGE_TIMING
    options = grain.experimental.DatasetOptions(execution_tracking_mode=mode)
    dataset = grain.experimental.WithOptionsIterDataset(
        grain.MapDataset.range(10).to_iter_dataset(), options
    )
    assert list(dataset) == list(range(10))
