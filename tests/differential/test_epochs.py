"""Epochs chosen one by one equal the epochs of one run of Grain."""

import grain.python as theirs
import numpy as np
import pytest

import gristmill as ours

EPOCHS = 3


def loader(grain, epochs, shuffle, shard):
    class Noisy(grain.RandomMapTransform):
        def random_map(self, x, rng):
            return {"x": x, "noise": rng.random()}

    return grain.DataLoader(
        data_source=range(12),
        sampler=grain.IndexSampler(
            12,
            grain.ShardOptions(*shard),
            shuffle=shuffle,
            num_epochs=epochs,
            seed=7,
        ),
        operations=[Noisy(), grain.Batch(2)],
    )


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("shard", [(0, 1), (1, 2)])
def test_chosen_loader_epochs_equal_grains_sampler(shuffle, shard):
    expected = list(loader(theirs, EPOCHS, shuffle, shard))
    made = loader(ours, 1, shuffle, shard)
    found = []
    for epoch in range(EPOCHS):
        made.set_epoch(epoch)
        found += made
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_chosen_chain_epochs_equal_grains_repeat(workers):
    def chain(grain):
        ds = grain.MapDataset.range(11).seed(3).shuffle()
        return ds.random_map(lambda x, rng: (x, rng.random()))

    ds = chain(ours).to_iter_dataset()
    if workers:
        options = ours.MultiprocessingOptions(num_workers=0)
        ds = ds.mp_prefetch(options, streams=workers)
    found = [x for epoch in range(EPOCHS) for x in ds.at_epoch(epoch)]
    expected = list(chain(theirs).repeat(EPOCHS))
    assert found == [(x, np.float64(noise)) for x, noise in expected]
