"""Tests of Grain's sources, of tables, and of errors for other objects."""

import pickle

import numpy as np
import pytest

from gristmill import batching, sources

grain = pytest.importorskip("grain")

RANGES = [(0, 8, 1), (1, 8, 3), (8, 0, -3), (5, 5, 1), (0, 7, 10)]


@pytest.mark.parametrize("bounds", RANGES)
def test_ranges_match_grain(bounds):
    ours = sources.RangeDataSource(*bounds)
    theirs = grain.sources.RangeDataSource(*bounds)
    assert repr(ours) == repr(theirs)
    assert [ours[i] for i in range(len(ours))] == list(range(*bounds))
    assert len(ours) == len(theirs)
    assert pickle.loads(pickle.dumps(ours))._len == len(theirs)
    for key in (-1, len(ours)):
        with pytest.raises(IndexError) as expected:
            theirs[key]
        with pytest.raises(IndexError) as found:
            ours[key]
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("bounds", [(0, 8, 0), (8, 0, 1), (0, 8, -1)])
def test_errors_of_bad_ranges_match_grain(bounds):
    with pytest.raises(AssertionError) as expected:
        grain.sources.RangeDataSource(*bounds)
    with pytest.raises(AssertionError) as found:
        sources.RangeDataSource(*bounds)
    assert str(found.value) == str(expected.value)


def test_keys_may_be_numpy_integers():
    assert sources.RangeDataSource(0, 8, 2)[np.int32(3)] == 6


def test_long_ranges_are_counted_exactly():
    assert len(sources.RangeDataSource(0, 2**60 + 1, 1)) == 2**60 + 1


@pytest.mark.parametrize("source", [[1], (1,), np.zeros(3), sources.TableSource])
def test_sources_match_runtime_protocol(source):
    assert isinstance(source, sources.RandomAccessDataSource)


def test_other_objects_do_not_match_runtime_protocol():
    assert not isinstance({1, 2}, sources.RandomAccessDataSource)
    assert not isinstance(5, grain.sources.RandomAccessDataSource)


class TestSharedMemoryDataSource:
    def test_elements_are_served_after_pickling(self):
        source = sources.SharedMemoryDataSource([1, 2.5, "three", b"4", None, True])
        try:
            attached = pickle.loads(pickle.dumps(source))
            assert list(attached) == [1, 2.5, "three", b"4", None, True]
            assert type(attached) is sources.SharedMemoryDataSource
            assert str(source) == f"InMemoryDataSource(name={source.shm.name}, len=6)"
            attached.close()
        finally:
            source.close()
            source.unlink()

    def test_missing_elements_and_name_are_refused(self):
        # After this, Grain's class fails in its destructor.
        with pytest.raises(ValueError, match=r"^Elements or name must be provided\.$"):
            sources.SharedMemoryDataSource()


def table_of(columns):
    return sources.TableSource(columns)


class TestTableSource:
    def test_array_gives_rows(self):
        array = np.arange(12.0).reshape(4, 3)
        table = table_of(array)
        assert len(table) == 4
        assert np.array_equal(table[2], array[2])
        assert np.shares_memory(table[2], array)

    def test_dict_gives_dicts_as_rows(self):
        table = table_of({"x": np.arange(3), "y": np.ones((3, 2))})
        assert list(table[1]) == ["x", "y"]
        assert table[1]["x"] == 1
        assert type(table[1]["x"]) is np.int64

    @pytest.mark.parametrize(
        "column",
        [
            np.arange(20, dtype=np.int16),
            np.random.default_rng(0).random((20, 3)),
            np.random.default_rng(0).random((20, 6))[:, ::2],
            np.arange(20)[::-1],
            np.array([[f"name {i}"] for i in range(20)]),
            np.arange(20).astype("datetime64[s]"),
        ],
    )
    def test_gather_matches_stacked_rows(self, column):
        rows = np.array([3, 0, 19, 3])
        table = table_of({"c": column})
        assert table.gathers
        batch = table.gather(rows)["c"]
        stacked = np.stack([table[i]["c"] for i in rows])
        assert batch.dtype == stacked.dtype
        assert np.array_equal(batch, stacked)

    @pytest.mark.parametrize("kind", ["U", "S"])
    def test_string_batch_has_minimal_width(self, kind):
        column = np.array(["a", "bcd", "e"]).astype(kind)
        assert not table_of({"c": column}).gathers
        batch = batching.make_batch([column[0], column[2]])
        assert batch.dtype == np.stack([column[0], column[2]]).dtype == f"{kind}1"

    def test_gathers_into_given_memory(self):
        memory = np.empty((2, 3))
        asked = []

        def alloc(shape, dtype):
            asked.append((shape, dtype))
            return memory

        batch = table_of(np.arange(12.0).reshape(4, 3)).gather(np.array([3, 1]), alloc)
        assert batch is memory
        assert asked == [((2, 3), np.dtype(np.float64))]
        assert batch.tolist() == [[9, 10, 11], [3, 4, 5]]

    @pytest.mark.parametrize("row", [-1, 4])
    @pytest.mark.parametrize("step", [1, -1])
    def test_rows_out_of_range_are_errors(self, row, step):
        with pytest.raises(IndexError):
            table_of(np.arange(4)[::step]).gather(np.array([0, row]))

    @pytest.mark.parametrize(
        "column",
        [
            np.array([1, "a"], dtype=object),
            np.zeros(2, [("a", "i4")]),
            np.zeros(2, ">f4"),
        ],
    )
    def test_dtypes_converted_by_numpy_are_not_gathered(self, column):
        assert not table_of({"good": np.zeros(2), "c": column}).gathers

    def test_order_of_names_matches_stacked_rows(self):
        table = table_of({"y": np.zeros(3), "x": np.zeros(3)})
        for rules in ("jax", "plain"):
            stacked = batching.make_batch([table[0], table[1]], rules=rules)
            assert list(table.gather(np.arange(2), rules=rules)) == list(stacked)

    def test_repr_shows_shapes_without_data(self):
        table = table_of({"x": np.zeros((3, 2), np.float32), "y": np.zeros(3)})
        assert repr(table) == "TableSource({'x': float32[3,2], 'y': float64[3]})"
        assert repr(table_of(np.zeros((3, 2)))) == "TableSource(float64[3,2])"

    @pytest.mark.parametrize(
        ("columns", "error", "words"),
        [
            ({}, ValueError, "empty dict"),
            (
                np.float32(1) + np.zeros(()),
                TypeError,
                "data_source must be .*got a float",
            ),
            (np.zeros(()), ValueError, r"data_source must have .*shape \(\)"),
            ({"x": [1, 2]}, TypeError, r"data_source\['x'\] must be .*got a list"),
            (
                {"x": np.zeros(3), "y": np.zeros(4)},
                ValueError,
                r"data_source\['y'\] .* 3 rows, like data_source\['x'\], got 4",
            ),
        ],
    )
    def test_bad_columns_are_named(self, columns, error, words):
        with pytest.raises(error, match=words):
            table_of(columns)


def test_iteration_raises_index_error_of_row():
    class Broken(sources.TableSource):
        def __getitem__(self, key):
            if key == 2:
                raise IndexError("of a row")
            return super().__getitem__(key)

    with pytest.raises(IndexError, match="of a row"):
        list(Broken(np.arange(5)))
    assert [int(row) for row in sources.TableSource(np.arange(5))] == [0, 1, 2, 3, 4]


class Unsized:
    def __getitem__(self, index):
        return index


class Unsure(Unsized):
    def __len__(self):
        return None


class TestAsSource:
    @pytest.mark.parametrize(
        "given", [np.zeros((3, 2)), {"x": np.zeros(3)}], ids=["array", "dict"]
    )
    def test_arrays_become_tables(self, given):
        assert isinstance(sources.as_source(given), sources.TableSource)

    @pytest.mark.parametrize(
        "given", [[1], (1,), "text", {0: "a"}, np.ma.zeros(2), Unsized(), Unsure()]
    )
    def test_other_sources_are_returned_unchanged(self, given):
        assert sources.as_source(given) is given

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            (5, "got a int, which has no __len__ and no __getitem__"),
            (None, "got a NoneType"),
            ({1, 2}, r"no __getitem__.*IterDataset.from_iterable\(...\)"),
            (
                (i for i in range(3)),
                r"got a generator.*IterDataset.from_iterable\(...\)",
            ),
            (sources.RangeDataSource, "got the class RangeDataSource itself"),
            (
                {"x": np.zeros(2), "y": [1, 2]},
                r"data_source\['y'\] must be .*got a list",
            ),
        ],
    )
    def test_unreadable_object_is_a_type_error(self, given, words):
        with pytest.raises(TypeError, match=words):
            sources.as_source(given)

    @pytest.mark.parametrize(
        "given", [[], np.zeros((0, 3)), {"x": np.zeros(0)}, range(0)]
    )
    def test_no_records_is_a_value_error(self, given):
        with pytest.raises(ValueError, match=r"greater than 0, .* with 0 records"):
            sources.as_source(given)
