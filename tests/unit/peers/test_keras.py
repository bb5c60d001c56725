"""Tests that Keras trains on our loaders and datasets like on Grain's."""

import numpy as np
import pytest

import gristmill
from faults.scripts import run
from support.keras_pairs import Pairs, X, Y, looks_like_pipeline

keras = pytest.importorskip("keras")
grain = pytest.importorskip("grain")

from keras.src.trainers import data_adapters  # noqa: E402
from keras.src.trainers.data_adapters import grain_dataset_adapter  # noqa: E402
from keras.src.utils import backend_utils  # noqa: E402

KINDS = ["MapDataset", "IterDataset", "DataLoader"]


def pairs(library, kind, **options):
    """Return a loader of batches of 16, 16 and 2 pairs, by Grain or Gristmill."""
    if kind == "MapDataset":
        return library.MapDataset.source(Pairs()).batch(16)
    if kind == "IterDataset":
        return library.MapDataset.source(Pairs()).to_iter_dataset().batch(16)
    return library.DataLoader(
        data_source=Pairs(),
        sampler=library.samplers.IndexSampler(34, num_epochs=1),
        operations=[library.transforms.Batch(16)],
        shard_options=library.sharding.NoSharding(),
        **options,
    )


def trained(make):
    """Return the results of fit, evaluate and predict for a fixed model."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    history = model.fit(
        make(), validation_data=make(), epochs=2, shuffle=False, verbose=0
    ).history
    loss = model.evaluate(make(), verbose=0)
    return history, loss, model.predict(make(), verbose=0).tolist()


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("kind", KINDS)
def test_fit_evaluate_and_predict_match_grain(kind):
    ours = trained(lambda: pairs(gristmill, kind))
    theirs = trained(lambda: pairs(grain, kind))
    assert ours == theirs


@pytest.mark.multiprocess
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_training_with_workers_matches_without():
    with_workers = trained(
        lambda: pairs(gristmill, "DataLoader", worker_count=2, streams=1)
    )
    assert with_workers == trained(lambda: pairs(gristmill, "DataLoader"))


def test_loader_keeps_its_own_options():
    loader = pairs(gristmill, "DataLoader", streams=3)
    adapter = grain_dataset_adapter.GrainDatasetAdapter(loader)
    given = [x.tolist() for x, _ in adapter.get_jax_iterator()]
    assert given == [x.tolist() for x, _ in loader]
    assert given != [x.tolist() for x, _ in pairs(gristmill, "DataLoader")]


@pytest.mark.parametrize("kind", KINDS)
def test_adapter_matches_grain(kind):
    ours, theirs = (
        grain_dataset_adapter.GrainDatasetAdapter(pairs(library, kind))
        for library in (gristmill, grain)
    )
    for name in ("batch_size", "num_batches", "has_partial_batch"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.partial_batch_size == theirs.partial_batch_size
    signatures = [
        [(leaf.shape, leaf.dtype) for leaf in keras.tree.flatten(it._output_signature)]
        for it in (ours, theirs)
    ]
    assert signatures[0] == signatures[1]


STRUCTURES = {
    "pair": lambda x, y: (x, y),
    "dict": lambda x, y: {"x": x, "y": y},
    "nested": lambda x, y: (x, {"both": (x, y)}),
}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(
    ("getter", "leaf"),
    [
        ("get_numpy_iterator", "numpy.ndarray"),
        ("get_jax_iterator", "numpy.ndarray"),
        ("get_torch_dataloader", "torch.Tensor"),
        ("get_tf_dataset", "EagerTensor"),
    ],
)
def test_elements_reach_every_backend_repeatedly(structure, getter, leaf):
    make = STRUCTURES[structure]
    ds = gristmill.MapDataset.source(Pairs()).map(lambda pair: make(*pair)).batch(16)
    elements = getattr(grain_dataset_adapter.GrainDatasetAdapter(ds), getter)()
    for _ in range(2):
        leaves = [keras.tree.flatten(element) for element in elements]
        assert leaf in str(type(leaves[0][0]))
        assert [len(columns[0]) for columns in leaves] == [16, 16, 2]
        np.testing.assert_array_equal(np.concatenate([c[0] for c in leaves]), X)
        np.testing.assert_array_equal(np.concatenate([c[-1] for c in leaves]), Y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"y": Y}, "the targets should be included"),
        ({"sample_weight": Y}, "the sample weights should be included"),
        ({"class_weight": {0: 1.0}}, "`class_weight` is not supported"),
    ],
)
def test_arguments_refused_for_grain_data_are_refused(kind, arguments, text):
    with pytest.raises(ValueError, match=text):
        data_adapters.get_data_adapter(pairs(gristmill, kind), **arguments)


def test_other_data_use_their_adapters():
    assert not data_adapters.is_grain_dataset(X)
    theirs = data_adapters.get_data_adapter(pairs(grain, "MapDataset"))
    assert type(theirs) is grain_dataset_adapter.GrainDatasetAdapter
    with pytest.raises(ValueError, match="Expected `dataset` to be a grain"):
        grain_dataset_adapter.GrainDatasetAdapter("text")


def test_endless_dataset_has_no_number_of_batches():
    ds = gristmill.MapDataset.source(Pairs()).repeat().filter(lambda pair: True)
    adapter = data_adapters.get_data_adapter(ds)
    assert adapter.num_batches is None


def split(library, kind, **sizes):
    """Return the parts of ten numbers by split_dataset, or its error's type."""
    data = library.MapDataset.range(10)
    if kind == "IterDataset":
        data = data.to_iter_dataset()
    try:
        # Our IterDataset has a length, so torch refuses it only when a part is read.
        return [list(part) for part in keras.utils.split_dataset(data, **sizes)]
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("kind", ["MapDataset", "IterDataset"])
@pytest.mark.parametrize("backend", [None, "torch", "tensorflow"])
@pytest.mark.parametrize("sizes", [{"left_size": 7}, {"right_size": 0.3}, {}])
def test_split_dataset_matches_grain(kind, backend, sizes):
    torch = pytest.importorskip("torch")
    found = []
    for library in (gristmill, grain):
        torch.manual_seed(0)
        found.append(split(library, kind, preferred_backend=backend, **sizes))
    assert found[0] == found[1]


def looking(*_):
    """Return whether Keras finds a Grain pipeline; usable as a step of each kind."""
    return np.array(backend_utils.in_grain_data_pipeline())


class Looking:
    """A source whose records are results of `looking`."""

    def __init__(self, count=8):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return looking()


def step(library, kind):
    """Return a transform that calls `looking`."""
    base = getattr(library.transforms, kind)
    names = {"Map": "map", "MapWithIndex": "map_with_index", "RandomMap": "random_map"}
    return type("Look", (base,), {names[kind]: staticmethod(looking)})()


def loaded(library, source, *operations):
    """Return a loader of eight records."""
    return library.DataLoader(
        data_source=source,
        sampler=library.samplers.IndexSampler(8, num_epochs=1, seed=1),
        operations=operations,
    )


PIPELINES = {
    "element": lambda lib: [lib.MapDataset.range(8).map(looking)[3]],
    "source": lambda lib: lib.MapDataset.source(Looking()),
    "map": lambda lib: lib.MapDataset.range(8).map(looking),
    "iter map": lambda lib: lib.MapDataset.range(8).to_iter_dataset().map(looking),
    "many": lambda lib: lib.MapDataset.range(3000).to_iter_dataset().map(looking),
    "random map": lambda lib: lib.MapDataset.range(8).seed(1).random_map(looking),
    "batch": lambda lib: lib.MapDataset.range(8).batch(2, batch_fn=looking),
    "iter batch": lambda lib: (
        lib.MapDataset.range(8).to_iter_dataset().batch(2, batch_fn=looking)
    ),
    "interleave": lambda lib: lib.experimental.InterleaveIterDataset(
        [lib.MapDataset.range(8).to_iter_dataset().map(looking)] * 2, cycle_length=2
    ),
    "threads": lambda lib: lib.experimental.multithread_prefetch(
        lib.MapDataset.range(8).to_iter_dataset().map(looking), 2, 2
    ),
    "loader source": lambda lib: loaded(lib, Looking()),
    "loader map": lambda lib: loaded(lib, range(8), step(lib, "Map")),
    "loader index": lambda lib: loaded(lib, range(8), step(lib, "MapWithIndex")),
    "loader random": lambda lib: loaded(lib, range(8), step(lib, "RandomMap")),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_layer_in_step_finds_pipeline(pipeline):
    assert all(PIPELINES[pipeline](gristmill))
    if pipeline != "loader index":  # Grain raises a TypeError for this one.
        assert all(PIPELINES[pipeline](grain))
    assert not looking()


def test_layer_in_torch_dataset_finds_no_pipeline():
    torch = pytest.importorskip("torch")
    from gristmill.torch import DataLoader

    for kind in (torch.utils.data.DataLoader, DataLoader):
        assert not any(batch.any() for batch in kind(Looking(), batch_size=4))
        chain = gristmill.MapDataset.range(8).map(looking)
        assert all(batch.all() for batch in kind(chain, batch_size=4))


@pytest.mark.multiprocess
def test_layer_in_worker_finds_pipeline():
    options = gristmill.MultiprocessingOptions(num_workers=1)
    chain = gristmill.MapDataset.range(4).map(looks_like_pipeline).to_iter_dataset()
    assert all(chain.mp_prefetch(options))
    assert all(gristmill.load(chain.parents[0], num_epochs=1, worker_count=1))


@pytest.mark.multiprocess
@pytest.mark.parametrize("start", ["without grain", "drop_in", "keras first"])
def test_fit_works_for_any_import_order(start):
    out = run("keras/fit", start, deadline_s=200)
    assert out.splitlines() == [*["(8, 2)"] * 3, "1 1"]
