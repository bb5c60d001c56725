"""Tests of random steps without a seed: they get None, and drawing is an error."""

import numpy as np
import pytest

import gristmill as g
from gristmill import operations, transforms

COUNT = 4


def draw(x, rng):
    return x + rng.integers(10)


class Draw(g.RandomMapTransform):
    def random_map(self, x, rng):
        return draw(x, rng)


class TfDraw(transforms.TfRandomMap):
    def np_random_map(self, x, rng):
        return draw(x, rng)


class Helped(g.RandomMapTransform):
    """Uses an attribute that equals None, even if it has a generator."""

    helper = None

    def random_map(self, x, rng):
        return self.helper.integers(10) if rng is not None else self.helper.lower()


class OwnSampler:
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return g.RecordMetadata(index=index, record_key=index)


def loader(*steps, sampler=None, **arguments):
    return g.DataLoader(
        data_source=range(COUNT),
        sampler=sampler or g.IndexSampler(COUNT, num_epochs=1),
        operations=steps,
        shard_options=g.NoSharding(),
        **arguments,
    )


UNSEEDED = {
    "a random map": lambda: loader(Draw()),
    "TF's random map": lambda: loader(TfDraw()),
    "one after a batch": lambda: loader(g.Batch(2), Draw()),
    "an old operation": lambda: loader(operations.RandomMapOperation(draw)),
    "a sequential sampler": lambda: loader(Draw(), sampler=g.SequentialSampler(COUNT)),
    "a sampler of the user's": lambda: loader(Draw(), sampler=OwnSampler()),
}


@pytest.mark.parametrize("name", UNSEEDED)
def test_draw_without_seed_asks_for_seed(name):
    with pytest.raises(ValueError, match=r"requires a seed\..*Please pass seed="):
        list(UNSEEDED[name]())


@pytest.mark.multiprocess
def test_draw_without_seed_in_worker_asks_for_seed():
    with pytest.raises(ValueError, match="`Draw` requires a seed"):
        list(loader(Draw(), worker_count=1))


@pytest.mark.parametrize("seed", [None, 1])
def test_error_of_other_none_attribute_is_unchanged(seed):
    sampler = g.IndexSampler(COUNT, num_epochs=1, seed=seed)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute"):
        list(loader(Helped(), sampler=sampler))


def careful(library):
    class Careful(library.RandomMapTransform):
        def random_map(self, x, rng):
            return x if rng is None else draw(x, rng)

    return Careful()


@pytest.mark.parametrize("seed", [None, 1])
def test_step_that_checks_generator_matches_grain(seed):
    import grain.python as grain  # Imported here, so that workers need not import it.

    found, expected = (
        list(
            library.DataLoader(
                data_source=[np.int64(i) for i in range(COUNT)],
                sampler=library.IndexSampler(
                    COUNT, library.NoSharding(), num_epochs=1, seed=seed
                ),
                operations=[careful(library)],
            )
        )
        for library in (g, grain)
    )
    assert found == expected
