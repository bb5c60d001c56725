"""Invalid arguments of datasets raise in the call that receives them."""

import numpy as np
import pytest

import gristmill as g
from gristmill import experimental, transforms
from support.twins import grain

NAN = float("nan")


class Double(transforms.Map):
    def map(self, element):
        return 2 * element


class Even(transforms.Filter):
    def filter(self, element):
        return element % 2 == 0


class Split(transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element):
        return [element]


class Boundless(Split):
    max_fan_out = None


def indexed():
    return g.MapDataset.range(6)


def iterated():
    return indexed().to_iter_dataset()


BOTH = [
    (lambda ds: ds.map(3), TypeError, "transform of map must be a function, got int"),
    (lambda ds: ds.map(None), TypeError, "transform of map must be .*got NoneType"),
    (lambda ds: ds.map(Double), TypeError, r"class Double itself.*of it: Double\(\)"),
    (lambda ds: ds.map(Even()), TypeError, r"It is a transforms.Filter: use ds.filter"),
    (lambda ds: ds.filter(3), TypeError, "transform of filter must be a function, got"),
    (lambda ds: ds.filter(Double()), TypeError, r"transforms.Map: use ds.map\("),
    (lambda ds: ds.map_with_index("f"), TypeError, "transform of map_with_index must"),
    (lambda ds: ds.random_map(3, seed=1), TypeError, "transform of random_map must be"),
    (
        lambda ds: ds.random_map(max, seed="a"),
        TypeError,
        "seed must be an int.*got str",
    ),
    (lambda ds: ds.random_map(max, seed=1.5), TypeError, "seed must be .*got float"),
    (lambda ds: ds.random_map(max, seed=-1), ValueError, "seed must be an int of at l"),
    (lambda ds: ds.seed("a"), ValueError, "seed must be an int of at least 0, got str"),
    (
        lambda ds: ds.seed(1.5),
        TypeError,
        "seed must be an int of at least 0, got float",
    ),
    (
        lambda ds: ds.seed(NAN),
        TypeError,
        "seed must be an int of at least 0, got float",
    ),
    (lambda ds: ds.seed(-1), ValueError, "seed must be an int of at least 0, got int"),
    (lambda ds: ds.batch("2"), TypeError, "batch_size must be an int, got str"),
    (lambda ds: ds.batch(2.0), TypeError, "batch_size must be an int, got float"),
    (lambda ds: ds.batch(None), TypeError, "batch_size must be an int, got NoneType"),
    (lambda ds: ds.batch(True), TypeError, "batch_size must be an int, got bool"),
    (lambda ds: ds.batch(0), ValueError, "^batch_size must be positive"),
    (lambda ds: ds.batch(-2), ValueError, "^batch_size must be positive"),
    (lambda ds: ds.batch(2, batch_fn=3), TypeError, "batch_fn must be a function, got"),
    (
        lambda ds: ds.batch(2, drop_remainder=8),
        TypeError,
        "drop_remainder must be True",
    ),
    (
        lambda ds: ds.set_options(3),
        TypeError,
        "options must be a DatasetOptions, got i",
    ),
    (
        lambda ds: ds.apply(str),
        NotImplementedError,
        "^Transformation type: <class 'str",
    ),
    (lambda ds: ds.apply(Boundless()), TypeError, None),
    (lambda ds: type(ds).mix(ds), TypeError, "mix needs a sequence of datasets, got"),
    (lambda ds: type(ds).mix([1, 2]), TypeError, "must be of type .*, got int"),
    (lambda ds: type(ds).mix([[1], [2]]), TypeError, "must be of type .*, got list"),
    (lambda ds: type(ds).mix([]), ValueError, "There are no datasets to mix"),
    (lambda ds: type(ds).mix([ds], ["a"]), TypeError, r"weights\[0\] must be a number"),
    (
        lambda ds: type(ds).mix([ds], "1"),
        TypeError,
        "weights must be a sequence of num",
    ),
    (
        lambda ds: type(ds).mix([ds], 0.5),
        TypeError,
        "weights must be a sequence of num",
    ),
    (
        lambda ds: type(ds).mix([ds], [NAN]),
        ValueError,
        r"weights\[0\] must be a finite",
    ),
    (lambda ds: type(ds).mix([ds], [-1]), ValueError, "Weights must be positive"),
    (lambda ds: type(ds).zip([ds, 3]), TypeError, "must be of type .*, got int"),
    (
        lambda ds: type(ds).zip(3),
        TypeError,
        "zip needs a sequence of datasets, got int",
    ),
]


@pytest.mark.parametrize("make", [indexed, iterated])
@pytest.mark.parametrize(("call", "kind", "text"), BOTH)
def test_both_dataset_kinds_reject_invalid_arguments(make, call, kind, text):
    if text is None and make is iterated:
        return  # Only a MapDataset needs max_fan_out.
    with pytest.raises(kind, match=text):
        call(make())


MAPS = [
    (lambda ds: ds.shuffle("a"), TypeError, "Seed must be an integer between 0 and"),
    (lambda ds: ds.shuffle([1]), TypeError, "Seed must be an integer between 0 and"),
    (lambda ds: ds.shuffle(-1), ValueError, "Seed must be an integer between 0 and"),
    (lambda ds: ds.shuffle(NAN), ValueError, "Seed must be an integer between 0 and"),
    (lambda ds: ds.shuffle(2**32), ValueError, "Seed must be an integer between 0 and"),
    (lambda ds: ds.slice(3), ValueError, "^sl is not a slice: <class 'int'>"),
    (lambda ds: ds.repeat("2"), TypeError, "num_epochs must be an int, got str"),
    (lambda ds: ds.repeat(1.5), TypeError, "num_epochs must be an int, got float"),
    (lambda ds: ds.repeat(True), TypeError, "num_epochs must be an int, got bool"),
    (lambda ds: ds.repeat(0), ValueError, "^num_epochs must be positive"),
    (lambda ds: ds.repeat(2, reseed_each_epoch=7), TypeError, "reseed_each_epoch must"),
    (lambda ds: ds.to_iter_dataset(4), TypeError, "read_options must be a ReadOptions"),
    (
        lambda ds: ds.to_iter_dataset(allow_nones=9),
        TypeError,
        "allow_nones must be True",
    ),
    (lambda ds: g.MapDataset.range(3.0), TypeError, "interpreted as an integer"),
    (lambda ds: g.MapDataset.range("3"), TypeError, "interpreted as an integer"),
    (
        lambda ds: g.MapDataset.concatenate(ds),
        TypeError,
        "concatenate needs a sequence",
    ),
    (lambda ds: g.MapDataset.concatenate([1]), TypeError, "Parents of Concatenate"),
    (
        lambda ds: g.MapDataset.select_from_datasets([ds], 3),
        TypeError,
        "selection_map must have .*got int",
    ),
    (
        lambda ds: g.MapDataset.mix([iterated()]),
        TypeError,
        "of type MapDataset, got PrefetchIterDataset",
    ),
    (
        lambda ds: experimental.WindowShuffleMapDataset(ds, window_size=2.0, seed=1),
        TypeError,
        "window_size must be an int, got float",
    ),
    (
        lambda ds: experimental.WindowShuffleMapDataset(ds, window_size=2, seed=None),
        TypeError,
        "seed must be an int, got NoneType",
    ),
    (
        lambda ds: experimental.FlatMapMapDataset(ds, lambda x: [x]),
        TypeError,
        "must be an instance of transforms.FlatMap, got function",
    ),
    (
        lambda ds: experimental.FlatMapMapDataset(ds, Boundless()),
        TypeError,
        "max_fan_out of Boundless must be an int, got NoneType",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), MAPS)
def test_map_dataset_rejects_invalid_arguments(call, kind, text):
    with pytest.raises(kind, match=text):
        call(indexed())


ITERS = [
    (lambda ds: ds.mp_prefetch(4), r"got int. Write mp_prefetch\(.*num_workers=4\)"),
    (lambda ds: ds.mp_prefetch("4"), "must be a MultiprocessingOptions, got str"),
    (lambda ds: ds.mp_prefetch(0), "must be a MultiprocessingOptions, got int"),
    (lambda ds: ds.mp_prefetch({"num_workers": 2}), "MultiprocessingOptions, got dict"),
    (lambda ds: ds.mp_prefetch(g.MultiprocessingOptions), "got the class Multiprocess"),
    (lambda ds: ds.mp_prefetch(worker_init_fn=3), "worker_init_fn must be a function"),
    (lambda ds: ds.mp_prefetch(sequential_slice=4), "sequential_slice must be True or"),
    (lambda ds: ds.mp_prefetch(streams=1.5), "streams must be an int, got float"),
    (
        lambda ds: experimental.LimitIterDataset(ds, 2.5),
        "count must be an int, got flo",
    ),
    (
        lambda ds: experimental.LimitIterDataset(ds, "2"),
        "count must be an int, got str",
    ),
    (lambda ds: experimental.LimitIterDataset([1], 2), "must be of type .*, got int"),
    (lambda ds: experimental.LimitIterDataset(3, 2), "must be of type .*, got int"),
    (lambda ds: experimental.RepeatIterDataset(ds, 1.5), "num_epochs must be an int"),
    (lambda ds: experimental.CacheIterDataset("abc"), "must be of type .*, got str"),
    (lambda ds: experimental.RebatchIterDataset(ds, 2.0), "batch_size must be an int"),
    (
        lambda ds: experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=1.5),
        "prefetch_buffer_size must be an int, got float",
    ),
    (
        lambda ds: experimental.InterleaveIterDataset([ds], cycle_length=1.5),
        "cycle_length must be an int, got float",
    ),
    (
        lambda ds: experimental.InterleaveIterDataset(ds, cycle_length=1),
        "datasets must be a sequence of datasets.*got PrefetchIterDataset",
    ),
    (
        lambda ds: experimental.WindowShuffleIterDataset(ds, window_size="2", seed=1),
        "window_size must be an int, got str",
    ),
    (
        lambda ds: experimental.FlatMapIterDataset(ds, Split),
        "must be an instance of transforms.FlatMap, got the class Split itself",
    ),
    (lambda ds: ds.pipe(experimental.WithOptionsIterDataset, 3), "be a DatasetOptions"),
    (
        lambda ds: experimental.multithread_prefetch(ds, 1.5, 1),
        "num_threads must be an int, got float",
    ),
    (
        lambda ds: experimental.ElasticIterator(ds, "8", g.NoSharding()),
        "global_batch_size must be an int, got str",
    ),
    (
        lambda ds: experimental.ElasticIterator(ds, 8, (0, 1)),
        "shard_options must be a ShardOptions, got tuple",
    ),
    (
        lambda ds: experimental.TFRecordIterDataset(["a"]),
        "path must be .* one file.* got list",
    ),
    (
        lambda ds: experimental.ParquetIterDataset(3),
        "path must be a file or a sequence",
    ),
    (
        lambda ds: experimental.DatasetOptions(filter_warn_threshold_ratio="0.5"),
        "filter_warn_threshold_ratio must be a number, got str",
    ),
    (
        lambda ds: experimental.FirstFitPackIterDataset(
            ds, length_struct={"x": 4}, num_packing_bins=2, seed="a"
        ),
        "seed must be an int, got str",
    ),
    (
        lambda ds: experimental.FirstFitPackIterDataset(
            ds, length_struct={"x": 4}, num_packing_bins=2, meta_features="x"
        ),
        "meta_features must be a sequence of names, got one",
    ),
    (
        lambda ds: experimental.ConcatThenSplitIterDataset(ds, length_struct=5),
        "length_struct must be a dict of ints, got int",
    ),
]


@pytest.mark.parametrize(("call", "text"), ITERS)
def test_iter_dataset_rejects_invalid_arguments(call, text):
    with pytest.raises(TypeError, match=text):
        call(iterated())


def test_mix_weights_must_have_names_of_parts():
    named = {"a": iterated(), "b": iterated()}
    with pytest.raises(ValueError, match=r"weights .* \['a', 'b'\], got \['a', 'c'\]"):
        g.IterDataset.mix(named, {"a": 1, "c": 2})
    with pytest.raises(TypeError, match="both be mappings, or both be sequences"):
        g.IterDataset.mix(named, [1, 2])


def test_map_dataset_mix_weights_must_have_names_of_parts():
    named = {"a": g.MapDataset.range(3), "b": g.MapDataset.range(3)}
    with pytest.raises(ValueError, match=r"weights .* \['a', 'b'\], got \['a', 'c'\]"):
        g.MapDataset.mix(named, {"a": 1, "c": 2})
    with pytest.raises(TypeError, match="both be mappings, or both be sequences"):
        g.MapDataset.mix(named, [1, 2])
    with pytest.raises(TypeError, match="both be mappings, or both be sequences"):
        g.MapDataset.mix(list(named.values()), {"a": 1, "b": 2})


@pytest.mark.parametrize("weights", [None, {"b": 1, "a": 3}])
def test_map_datasets_mixed_by_name_match_iter_datasets(weights):
    parts = {"b": g.MapDataset.range(5), "a": g.MapDataset.range(10, 30)}
    mixed = g.MapDataset.mix(parts, weights)
    streams = {name: part.to_iter_dataset() for name, part in parts.items()}
    assert list(mixed) == list(g.IterDataset.mix(streams, weights))[: len(mixed)]
    assert len(mixed) >= 10


ACCEPTED = {
    "NumPy's integers": lambda lib: (
        lib.MapDataset.range(6).seed(np.int32(3)).shuffle().repeat(np.int64(2))
    ),
    "NumPy's seeds": lambda lib: lib.MapDataset.range(6).shuffle(np.uint32(7)),
    "a seed of several words": lambda lib: lib.MapDataset.range(6).random_map(
        lambda x, rng: (x, int(rng.integers(99))), seed=[1, 2]
    ),
    "a seed that is an array": lambda lib: lib.MapDataset.range(6).random_map(
        lambda x, rng: (x, int(rng.integers(99))), seed=np.array([1, 2])
    ),
    "a class that is called": lambda lib: lib.MapDataset.range(3).map(str),
    "a bound method": lambda lib: lib.MapDataset.source(["a", "B"]).map(str.upper),
    "no seed": lambda lib: lib.MapDataset.range(6).seed(None).map(str),
    "datasets of indices in an iterated mixture": lambda lib: lib.IterDataset.mix(
        [lib.MapDataset.range(3), lib.MapDataset.range(3)]
    ),
    "a limit that is a whole float": lambda lib: lib.experimental.LimitIterDataset(
        lib.MapDataset.range(6).to_iter_dataset(), 2.0
    ),
    "a cached dataset of indices": lambda lib: lib.experimental.CacheIterDataset(
        lib.MapDataset.range(6)
    ),
    "a list as a selection": lambda lib: lib.MapDataset.select_from_datasets(
        [lib.MapDataset.range(3)], [(0, 2), (0, 1)]
    ),
    "weights that are an array": lambda lib: lib.MapDataset.mix(
        [lib.MapDataset.range(6), lib.MapDataset.range(6)], np.array([1.0, 2.0])
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_arguments_of_grain_are_accepted(name):
    make = ACCEPTED[name]
    assert str(list(make(g))) == str(list(make(grain())))
