"""Zipping combines the elements of several datasets into tuples."""

import pytest

import gristmill
from gristmill.experimental import ZipIterDataset, ZipMapDataset
from support.twins import assert_twins, grain

LIBRARIES = pytest.mark.parametrize("library", [lambda: gristmill, grain])


def numbers(*lengths, library=gristmill):
    return [library.MapDataset.range(n).to_iter_dataset() for n in lengths]


def test_zipped_map_has_tuples_at_all_indices():
    parts = [gristmill.MapDataset.range(3), gristmill.MapDataset.range(10, 13)]
    ds = ZipMapDataset(parts)
    assert len(ds) == 3
    assert [ds[i] for i in (0, 2, 4, -1)] == [(0, 10), (2, 12), (1, 11), (2, 12)]
    assert list(ds[::2]) == [(0, 10), (2, 12)]
    assert next(iter(ds.batch(2)))[1].tolist() == [10, 11]


def test_methods_match_classes():
    parts = [gristmill.MapDataset.range(3), gristmill.MapDataset.range(10, 13)]
    zipped = gristmill.MapDataset.zip(parts)
    assert type(zipped) is ZipMapDataset
    assert list(zipped) == list(ZipMapDataset(parts))
    uneven = numbers(3, 2)
    zipped = gristmill.IterDataset.zip(uneven, strict=False)
    assert type(zipped) is ZipIterDataset
    assert list(zipped) == [(0, 0), (1, 1)]
    with pytest.raises(ValueError):
        list(gristmill.IterDataset.zip(uneven))


def test_absent_elements_stay_in_their_tuples():
    parts = [gristmill.MapDataset.range(3).filter(bool), gristmill.MapDataset.range(3)]
    assert [ZipMapDataset(parts)[i] for i in range(2)] == [(None, 0), (1, 1)]


@LIBRARIES
def test_zipped_maps_must_be_equally_long(library):
    make = library().experimental.ZipMapDataset
    parts = [library().MapDataset.range(n) for n in (2, 3)]
    with pytest.raises(ValueError, match="All parents must have the same length"):
        make(parts)
    with pytest.raises(ValueError, match=r"At least one parent must be provided."):
        make([])


@LIBRARIES
@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([3, 2], "ZipIterDataset argument 2 is shorter than argument 1"),
        ([2, 3], "ZipIterDataset argument 2 is longer than argument 1"),
        ([3, 3, 2], "ZipIterDataset argument 3 is shorter than arguments 1-2"),
        ([2, 2, 3], "ZipIterDataset argument 3 is longer than arguments 1-2"),
    ],
)
def test_strict_zips_must_end_together(library, lengths, words):
    make = library().experimental.ZipIterDataset
    iterator = iter(make(numbers(*lengths, library=library())))
    for i in range(min(lengths)):
        assert next(iterator) == (i,) * len(lengths)
    with pytest.raises(ValueError, match=f"^{words}"):
        next(iterator)


@pytest.mark.parametrize("strict", [True, False])
def test_zips_match_grain(strict):
    def make(lib):
        parts = numbers(5, 5, library=lib)
        parts[1] = parts[1].random_map(lambda x, rng: rng.integers(100), seed=1)
        return lib.experimental.ZipIterDataset(parts, strict=strict)

    assert len(assert_twins(make)) == 5


def test_non_strict_zip_ends_with_the_shortest():
    assert_twins(
        lambda lib: lib.experimental.ZipIterDataset(
            numbers(4, 2, 3, library=lib), strict=False
        )
    )


@pytest.mark.claim("After an error in a zip, its datasets are out of step")
def test_error_drops_only_its_tuple():
    def fail_at(bad):
        def function(x):
            if x == bad:
                raise RuntimeError(bad)
            return x

        return function

    parts = [part.map(fail_at(k + 1)) for k, part in enumerate(numbers(5, 5, 5))]
    iterator = iter(ZipIterDataset(parts))
    found = []
    for _ in range(6):
        try:
            found.append(next(iterator))
        except RuntimeError as error:
            found.append(error.args[0])
        except StopIteration:
            found.append("end")
    assert found == [(0, 0, 0), 1, 2, 3, (4, 4, 4), "end"]


def test_names():
    parts = numbers(1, 1)
    assert str(iter(ZipIterDataset(parts))) == "ZipDatasetIterator([2 parents])"
