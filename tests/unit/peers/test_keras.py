"""Keras trains on loaders and datasets as it does on Grain's."""

import numpy as np
import pytest

import gristmill
from faults.scripts import run
from support.keras_pairs import Pairs, X, Y

keras = pytest.importorskip("keras")
grain = pytest.importorskip("grain")

from keras.src.trainers import data_adapters  # noqa: E402
from keras.src.trainers.data_adapters import grain_dataset_adapter  # noqa: E402

KINDS = ["MapDataset", "IterDataset", "DataLoader"]


def pairs(library, kind, **options):
    """Batches of 16, 16 and 2 pairs, by Grain or Gristmill."""
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
    """What fit, evaluate and predict return for the same model and data."""
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
def test_fit_evaluate_and_predict_do_as_with_grain(kind):
    ours = trained(lambda: pairs(gristmill, kind))
    theirs = trained(lambda: pairs(grain, kind))
    assert ours == theirs


@pytest.mark.multiprocess
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_workers_may_compute_the_batches():
    with_workers = trained(
        lambda: pairs(gristmill, "DataLoader", worker_count=2, streams=1)
    )
    assert with_workers == trained(lambda: pairs(gristmill, "DataLoader"))


def test_a_loaders_own_options_count():
    loader = pairs(gristmill, "DataLoader", streams=3)
    adapter = grain_dataset_adapter.GrainDatasetAdapter(loader)
    given = [x.tolist() for x, _ in adapter.get_jax_iterator()]
    assert given == [x.tolist() for x, _ in loader]
    assert given != [x.tolist() for x, _ in pairs(gristmill, "DataLoader")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_adapter_says_what_it_says_of_grain(kind):
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
def test_elements_reach_every_backend_again_and_again(structure, getter, leaf):
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
def test_what_grains_data_cannot_have_is_refused(kind, arguments, text):
    with pytest.raises(ValueError, match=text):
        data_adapters.get_data_adapter(pairs(gristmill, kind), **arguments)


def test_other_data_go_where_they_went():
    assert not data_adapters.is_grain_dataset(X)
    theirs = data_adapters.get_data_adapter(pairs(grain, "MapDataset"))
    assert type(theirs) is grain_dataset_adapter.GrainDatasetAdapter
    with pytest.raises(ValueError, match="Expected `dataset` to be a grain"):
        grain_dataset_adapter.GrainDatasetAdapter("text")


def test_a_dataset_of_records_has_no_batch_size_to_tell():
    ds = gristmill.MapDataset.source(Pairs()).repeat().filter(lambda pair: True)
    adapter = data_adapters.get_data_adapter(ds)
    assert adapter.num_batches is None


@pytest.mark.multiprocess
@pytest.mark.parametrize("start", ["without grain", "drop_in", "keras first"])
def test_grain_need_not_be_there_nor_gristmill_first(start):
    out = run("keras/fit", start, deadline_s=200)
    assert out.splitlines() == ["(8, 2)"] * 3
