"""Behavior of every dataset: user nodes, errors, states, seeds, closing."""

import gc
import json
import sys
import threading
import weakref

import numpy as np
import pytest

import gristmill
from gristmill import IterDataset, MapDataset
from gristmill.experimental import (
    DatasetOptions,
    ShapeDtypeStruct,
    WithOptionsIterDataset,
    get_element_spec,
    get_next_index,
    set_next_index,
)
from support.waiting import started_since, wait_until_ended

ASK = gristmill.ReadOptions(0, 0)


class Squares(MapDataset):
    """A user's source that never calls ``super().__init__``."""

    def __init__(self):
        self.asked = []

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.slice(index)
        self.asked.append(index)
        return (index % 6) ** 2


class Doubled(MapDataset):
    """A user's node that reads in blocks."""

    def __init__(self, parent):
        super().__init__(parent)
        self.blocks = []

    def __len__(self):
        return len(self._parent)

    def __getitem__(self, index):
        raise AssertionError("read in blocks")

    def _getitems(self, indices):
        self.blocks.append(indices)
        return [2 * x for x in self._parent._getitems(indices)]


class EveryOther(IterDataset):
    """A user's node over an iterator."""

    def __iter__(self):
        return EveryOtherIterator(iter(self._parent))


class EveryOtherIterator(gristmill.DatasetIterator):
    def __next__(self):
        self._assert_not_closed()
        next(self._parent)
        with self._stats.record_self_time():
            return self._stats.record_output_spec(next(self._parent))

    def get_state(self):
        return {"mine": self._parent.get_state()}

    def set_state(self, state):
        self._parent.set_state(state["mine"])


def failing(*bad):
    def function(x):
        if x in bad:
            raise KeyError(x)
        return x

    return function


class TestUserNodes:
    def test_source_without_super_init_works_in_any_chain(self):
        ds = Squares().map(lambda x: x + 1).shuffle(3)[::2].batch(2)
        assert sorted(np.concatenate(list(ds)).tolist()) == sorted(
            ds_x + 1 for ds_x in (Squares().shuffle(3)[::2][i] for i in range(3))
        )

    def test_source_is_read_once_per_python_int_index(self):
        source = Squares()
        assert list(source.to_iter_dataset(ASK)) == [0, 1, 4, 9, 16, 25]
        assert source.asked == list(range(6))
        assert {type(index) for index in source.asked} == {int}

    def test_node_with_getitems_is_read_in_blocks(self):
        ds = Doubled(MapDataset.range(8).shuffle(1))
        assert len(list(ds.batch(4))) == 2
        assert [len(block) for block in ds.blocks] == [4, 4]
        assert {type(index) for block in ds.blocks for index in block} == {int}

    def test_getitems_of_wrong_length_names_the_node(self):
        class Short(Doubled):
            def _getitems(self, indices):
                return [1]

        with pytest.raises(ValueError, match=r"Short\._getitems returned 1 element"):
            Short(MapDataset.range(8)).batch(4)[0]

    def test_subclass_of_built_in_node_uses_its_getitem(self):
        from gristmill._dataset.nodes.map import MapMapDataset

        class Negated(MapMapDataset):
            def __getitem__(self, index):
                return -super().__getitem__(index)

        ds = Negated(MapDataset.range(3), lambda x: x + 1)
        assert list(ds) == [-1, -2, -3]
        assert ds.batch(3)[0].tolist() == [-1, -2, -3]

    def test_user_iterator_works_in_a_chain(self):
        ds = EveryOther(MapDataset.range(12).to_iter_dataset()).map(lambda x: 10 * x)
        iterator = iter(ds.batch(2))
        assert next(iterator).tolist() == [10, 30]
        assert iterator.get_state() == {"mine": {"next_index": 4}}
        again = iter(ds.batch(2))
        again.set_state(iterator.get_state())
        assert [batch.tolist() for batch in again] == [[50, 70], [90, 110]]

    def test_context_and_options_reach_every_iterator(self):
        options = DatasetOptions(min_shm_size=7)
        ds = EveryOther(MapDataset.range(4).to_iter_dataset()).map(lambda x: x)
        iterator = iter(WithOptionsIterDataset(ds, options))
        assert iterator._ctx.dataset_options.min_shm_size == 7
        assert iterator._parent._parent._ctx is iterator._ctx


class TestErrors:
    @pytest.mark.claim(
        "After an exception, the position is one too low (with threads), or the "
        "same element is tried forever (without)"
    )
    @pytest.mark.parametrize("read_options", [ASK, None, gristmill.ReadOptions(2, 4)])
    def test_failed_element_counts_as_consumed(self, read_options):
        ds = MapDataset.range(10).map(failing(0, 4, 5)).to_iter_dataset(read_options)
        iterator = iter(ds)
        found = []
        while True:
            try:
                found.append(next(iterator))
            except KeyError as error:
                found.append(f"failed {error}")
                assert iterator.get_state() == {"next_index": len(found)}
            except StopIteration:
                break
        expected = list(range(10))
        for bad in (0, 4, 5):
            expected[bad] = f"failed {bad}"
        assert found == expected

    def test_error_inside_a_batch_shifts_the_batches(self):
        ds = MapDataset.range(6).to_iter_dataset().map(failing(1)).batch(2)
        iterator = iter(ds)
        with pytest.raises(KeyError):
            next(iterator)
        assert [batch.tolist() for batch in iterator] == [[2, 3], [4, 5]]

    def test_error_names_part_of_mixture(self):
        ds = MapDataset.mix([MapDataset.range(3), MapDataset.range(3).map(failing(0))])
        with pytest.raises(KeyError) as caught:
            ds[1]
        assert caught.value.__notes__[1:] == [
            "Exception caught while processing dataset @ dataset_index=1,"
        ]

    def test_shape_mismatch_in_batch_is_explained(self):
        ds = MapDataset.range(2).map(lambda x: np.zeros(x)).batch(2)
        with pytest.raises(gristmill.ShapeMismatch, match="same structure") as caught:
            ds[0]
        assert "first convert the dataset to" in caught.value.__notes__[0]

    def test_closed_iterator_raises(self):
        iterator = iter(MapDataset.range(3).to_iter_dataset())
        next(iterator)
        iterator.close()
        iterator.close()
        with pytest.raises(
            ValueError, match="Trying to advance a closed iterator: 'Pre"
        ):
            next(iterator)
        assert iterator.get_state() == {"next_index": 1}

    @pytest.mark.parametrize("make", ["shuffle", "random_map"])
    def test_random_steps_need_a_seed(self, make):
        arguments = [lambda x, rng: x] if make == "random_map" else []
        with pytest.raises(ValueError, match=f"`{make}` requires a seed"):
            getattr(MapDataset.range(3), make)(*arguments)

    @pytest.mark.parametrize("seed", [-1, 2**32])
    def test_shuffle_seeds_have_32_bits(self, seed):
        with pytest.raises(ValueError, match="between 0 and 2"):
            MapDataset.range(3).shuffle(seed)

    def test_batch_after_sparse_dataset_is_rejected(self):
        sparse = MapDataset.range(4).filter(lambda x: x > 1).map(lambda x: x)
        with pytest.raises(ValueError, match=r"can not follow `MapDataset\.filter`"):
            sparse.batch(2)

    @pytest.mark.claim("Negative or missing weights fail at some element, or never")
    @pytest.mark.parametrize(
        ("weights", "text"),
        [
            ([1], "must have 2 numbers, .* got 1"),
            ([1, 0], "non-zero"),
            ([1, -1], "positive"),
        ],
    )
    def test_weights_are_checked(self, weights, text):
        parts = [MapDataset.range(3), MapDataset.range(3)]
        with pytest.raises(ValueError, match=text):
            MapDataset.mix(parts, weights)
        with pytest.raises(ValueError, match=text):
            IterDataset.mix([part.to_iter_dataset() for part in parts], weights)

    def test_weights_may_be_an_array(self):
        parts = [MapDataset.range(3), MapDataset.range(10, 13)]
        assert list(MapDataset.mix(parts, np.array([0.5, 0.5]))) == [
            0,
            10,
            1,
            11,
            2,
            12,
        ]
        unequal = MapDataset.mix(parts, np.array([0.3, 0.7]))
        assert list(unequal) == list(MapDataset.mix(parts, [0.3, 0.7]))

    @pytest.mark.parametrize(
        "make",
        [
            lambda ds: ds.batch(1.5),
            lambda ds: ds.to_iter_dataset().batch(2.0),
            lambda ds: ds.repeat(1.5),
        ],
    )
    def test_counts_are_integers(self, make):
        with pytest.raises(TypeError, match="got float"):
            make(MapDataset.range(9))

    def test_empty_part_of_mixture_is_named(self):
        with pytest.raises(ValueError, match=r"dataset\(s\) at index 1 \(RangeMapD"):
            MapDataset.mix([MapDataset.range(3), MapDataset.range(0)])

    def test_empty_dataset_has_no_element(self):
        range_ = MapDataset.range(0)
        for empty in (range_, MapDataset.range(5)[3:3], MapDataset.source([])):
            assert list(empty) == []
            with pytest.raises(ZeroDivisionError):
                empty[0]

    @pytest.mark.parametrize("index", [1.5, "1", (1, 2), None])
    def test_indices_are_integers(self, index):
        for ds in (MapDataset.range(5), MapDataset.source([1, 2]).map(str)):
            with pytest.raises(TypeError, match="must be an int or a slice, got"):
                ds[index]
            with pytest.raises(TypeError, match="must be an int or a slice, got"):
                ds._getitems([index])

    def test_numpy_integers_are_indices(self):
        assert MapDataset.range(5)[np.uint8(3)] == 3

    @pytest.mark.parametrize("index", [2**62, -(2**62), 2**63, 3**99])
    def test_index_of_any_size_wraps_to_an_epoch(self, index):
        batch = MapDataset.range(7).batch(2, drop_remainder=True)[index]
        first = 2 * (index % 3)
        assert batch.tolist() == [first, first + 1]

    def test_apply_rejects_bare_functions(self):
        with pytest.raises(NotImplementedError, match="is not supported"):
            MapDataset.range(3).apply([lambda x: x])


class TestStates:
    def test_state_past_the_end_is_rejected(self):
        iterator = iter(MapDataset.range(4).to_iter_dataset())
        iterator.set_state({"next_index": 4})
        with pytest.raises(
            IndexError, match="`next_index` 5 is out of range for dataset"
        ):
            iterator.set_state({"next_index": 5})

    def test_iterators_of_one_dataset_are_independent(self):
        ds = MapDataset.range(4).to_iter_dataset().map_with_index(lambda i, x: (i, x))
        one, other = iter(ds), iter(ds)
        assert [next(one), next(one), next(other)] == [(0, 0), (1, 1), (0, 0)]

    def test_next_index_counts_batches(self):
        ds = MapDataset.range(20).to_iter_dataset().map(lambda x: x).batch(3)
        iterator = iter(ds)
        set_next_index(iterator, 4)
        assert next(iterator).tolist() == [12, 13, 14]
        assert get_next_index(iterator) == 5

    def test_next_index_of_filter_is_not_implemented(self):
        iterator = iter(MapDataset.range(20).to_iter_dataset().filter(bool))
        with pytest.raises(NotImplementedError):
            get_next_index(iterator)

    def test_states_are_json(self):
        ds = MapDataset.range(9).seed(1).random_map(lambda x, rng: x).to_iter_dataset()
        iterator = iter(ds.random_map(lambda x, rng: x + rng.random()).batch(2))
        next(iterator)
        state = json.loads(json.dumps(iterator.get_state()))
        assert state == {"parent": {"next_index": 2}, "index_for_rng": 2}


class TestFlatMapStates:
    @pytest.mark.parametrize("where", ["parent", "split"])
    def test_state_after_failed_element_can_be_restored(self, where):
        class Twice(gristmill.FlatMapTransform):
            max_fan_out = 2

            def flat_map(self, x):
                return [failing(2 if where == "split" else -1)(x)] * 2

        ds = MapDataset.range(4).map(failing(2 if where == "parent" else -1))
        ds = ds.to_iter_dataset().apply(Twice())
        iterator = iter(ds)
        assert [next(iterator) for _ in range(4)] == [0, 0, 1, 1]
        with pytest.raises(KeyError):
            next(iterator)
        again = iter(ds)
        again.set_state(iterator.get_state())
        assert list(again) == list(iterator) == [3, 3]


class TestMixtureStates:
    def parts(self):
        return {
            name: MapDataset.range(begin, begin + 50).to_iter_dataset()
            for name, begin in {"a": 0, "b": 100, "c": 200}.items()
        }

    def test_changed_parts_and_weights_lose_and_repeat_nothing(self):
        parts = self.parts()
        before = iter(IterDataset.mix({n: parts[n] for n in "ab"}, {"a": 1, "b": 3}))
        taken = [next(before) for _ in range(20)]
        after = iter(IterDataset.mix(parts, {"a": 2, "b": 1, "c": 1}))
        after.set_state(json.loads(json.dumps(before.get_state())))
        taken += [next(after) for _ in range(40)]
        for begin in (0, 100, 200):
            of_part = [x for x in taken if begin <= x < begin + 50]
            assert of_part == list(range(begin, begin + len(of_part)))
        assert sum(x >= 200 for x in taken[20:]) == 10

    def test_unnamed_parts_must_keep_their_count(self):
        parts = list(self.parts().values())
        state = iter(IterDataset.mix(parts[:2])).get_state()
        with pytest.raises(
            gristmill.StateMismatch, match="expected 3 datasets, got 2 datasets"
        ):
            iter(IterDataset.mix(parts)).set_state(state)
        with pytest.raises(gristmill.StateMismatch, match="needs names"):
            iter(IterDataset.mix(self.parts())).set_state(state)


class TestThresholds:
    def drop(self, **options):
        ds = MapDataset.range(5000).to_iter_dataset().filter(lambda x: x % 10 == 0)
        return WithOptionsIterDataset(ds, DatasetOptions(**options))

    def test_warning_names_the_filter(self, caplog):
        list(self.drop())
        (record,) = caplog.records
        assert "FilterDatasetIterator(transform=<lambda> @" in record.getMessage()
        assert "skipped 90.00 % of the last seen 1000" in record.getMessage()

    def test_threshold_none_never_warns(self, caplog):
        list(self.drop(filter_warn_threshold_ratio=None))
        assert not caplog.records

    def test_ratio_equal_to_threshold_raises(self):
        with pytest.raises(ValueError, match=r"skipped 90.00 % of the last seen 1000"):
            list(self.drop(filter_raise_threshold_ratio=0.9))

    def test_elements_dropped_by_map_filter_count(self):
        ds = MapDataset.range(3000).filter(lambda x: x == 2).to_iter_dataset()
        options = DatasetOptions(filter_raise_threshold_ratio=0.99)
        with pytest.raises(ValueError, match="Transformation PrefetchDatasetIterator"):
            list(WithOptionsIterDataset(ds, options))


class TestOptions:
    def test_merge_prefers_values_of_first(self):
        merged = DatasetOptions(min_shm_size=1).merge(
            DatasetOptions(min_shm_size=2, filter_warn_threshold_ratio=0.5)
        )
        assert merged == DatasetOptions(min_shm_size=1, filter_warn_threshold_ratio=0.5)

    def test_may_be_set_on_map_dataset(self):
        ds = MapDataset.range(3).set_options(DatasetOptions(min_shm_size=5)).shuffle(1)
        iterator = iter(ds.to_iter_dataset().with_options(DatasetOptions()).batch(2))
        assert iterator._ctx.dataset_options.min_shm_size == 5
        last = ds.to_iter_dataset().set_options(DatasetOptions(min_shm_size=6))
        assert iter(last)._ctx.dataset_options.min_shm_size == 6

    def test_explicit_defaults_differ_from_unset(self):
        assert DatasetOptions(min_shm_size=0) != DatasetOptions()


class TestSpecs:
    def test_spec_follows_the_chain_without_reading(self):
        class Pair:
            def map(self, x):
                raise AssertionError("computes nothing")

            def __call__(self, x):
                raise AssertionError("computes nothing")

            def output_spec(self, spec):
                return {"a": spec, "b": ShapeDtypeStruct((3,), np.float32)}

        ds = MapDataset.range(10).shuffle(1)[::2].repeat(2).map(Pair())
        assert get_element_spec(ds.batch(4)) == {
            "a": ShapeDtypeStruct((None,), np.int64),
            "b": ShapeDtypeStruct((None, 3), np.float32),
        }
        iterated = ds.to_iter_dataset().filter(bool).batch(4, drop_remainder=True)
        assert get_element_spec(iterated)["b"] == ShapeDtypeStruct((4, 3), np.float32)

    def test_source_has_no_spec(self):
        with pytest.raises(NotImplementedError, match="SourceMapDataset"):
            get_element_spec(MapDataset.source([1]))

    def test_function_has_no_spec(self):
        with pytest.raises(ValueError, match="does not implement `output_spec`"):
            get_element_spec(MapDataset.range(3).map(lambda x: x))


class TestLifetime:
    def test_dropped_iterator_ends_its_threads(self):
        seen = threading.Event()
        before = set(threading.enumerate())

        def slow(x):
            seen.wait(0.001)
            return x

        iterator = iter(MapDataset.range(1000).map(slow).to_iter_dataset().map(slow))
        for _ in range(40):
            next(iterator)
        mine = [t for t in started_since(before) if t.name.startswith("gristmill-read")]
        assert mine
        gc.disable()
        try:
            ref = weakref.ref(iterator)
            del iterator
            assert ref() is None
        finally:
            gc.enable()
        wait_until_ended(mine)

    def test_elements_are_freed(self):
        class Element:
            pass

        refs = []

        def make(x):
            element = Element()
            refs.append(weakref.ref(element))
            return element

        list(MapDataset.range(5).map(make).to_iter_dataset(ASK).batch(2, batch_fn=len))
        gc.collect()
        assert not [ref for ref in refs if ref() is not None]


class TestArrays:
    @pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, "<U3"])
    def test_batches_of_array_rows_equal_stacked_rows(self, dtype):
        rows = np.arange(60).astype(dtype).reshape(20, 3)
        for array in (rows, rows[:, 0], rows[::2]):
            for chain in (lambda ds: ds, lambda ds: ds.shuffle(1).repeat(2)[1:]):
                ds = chain(MapDataset.source(array))
                whole = chain(MapDataset.source(list(array)))
                for ours, expected in zip(
                    [*ds.batch(4), *ds.to_iter_dataset().batch(4)],
                    [*whole.batch(4), *whole.to_iter_dataset().batch(4)],
                    strict=True,
                ):
                    np.testing.assert_array_equal(ours, expected, strict=True)

    def test_resumed_batches_of_rows_are_the_same(self):
        ds = MapDataset.source(np.arange(10)).shuffle(2).to_iter_dataset().batch(3)
        iterator = iter(ds)
        next(iterator)
        state = iterator.get_state()
        assert state == {"next_index": 3}
        again = iter(ds)
        again.set_state(state)
        assert [b.tolist() for b in again] == [b.tolist() for b in iterator]

    def test_dict_of_arrays_is_a_source_of_rows(self):
        ds = MapDataset.source({"x": np.arange(4), "y": np.arange(8).reshape(4, 2)})
        assert ds[5]["y"].tolist() == [2, 3]
        assert ds.batch(3)[1]["x"].tolist() == [3]

    def test_array_without_rows_is_empty(self):
        assert list(MapDataset.source(np.zeros((0, 3)))) == []


def test_values_beyond_64_bits_are_exact():
    assert list(MapDataset.range(2**63 - 2, 2**63 + 2)) == [
        2**63 - 2,
        2**63 - 1,
        2**63,
        2**63 + 1,
    ]


@pytest.mark.parametrize("step", ["map", "shuffle", "filter"])
def test_chains_may_be_long(step):
    ds = MapDataset.range(3)
    # The first releases of CPython 3.12 allow about 750 nested calls of len().
    for _ in range(600 if sys.version_info[:2] == (3, 12) else 800):
        ds = ds.shuffle(1) if step == "shuffle" else getattr(ds, step)(lambda x: x + 1)
    assert len(list(ds)) == 3


def test_failing_len_raises_without_stderr_output(capsys):
    class Bad(MapDataset):
        def __len__(self):
            raise KeyError("length")

        def __getitem__(self, index):
            raise AssertionError

    with pytest.raises(KeyError, match="length"):
        iter(Bad())
    gc.collect()
    assert capsys.readouterr().err == ""


def test_endless_dataset_has_maximum_length():
    ds = MapDataset.range(3).shuffle(1).repeat()
    assert len(ds) == sys.maxsize
    assert sorted(ds[i] for i in range(30000, 30003)) == [0, 1, 2]
    assert len(ds.batch(2)) == 4611686018427387904
    with pytest.raises(ValueError, match="already infinite"):
        ds.repeat()
    with pytest.raises(ValueError, match="Cannot concatenate infinite"):
        MapDataset.concatenate([ds])
