"""Code as users of Grain's DataLoader write it, run in both libraries.

The idioms come from public code: sources and samplers as subclasses, dataclass
transforms, elements of JAX, old operations.
"""

import dataclasses
import functools
import typing

import numpy as np
import pytest

from differential.pipelines import OURS, THEIRS, canonical, ready


class Pair(typing.NamedTuple):
    number: int
    name: str


def elements_of(grain, source, operations=(), **options):
    """Return the output of a shuffled loader, in comparable form."""
    sampler = grain.IndexSampler(
        num_records=options.pop("count", 11),
        shard_options=grain.NoSharding(),
        shuffle=True,
        num_epochs=2,
        seed=42,
    )
    options = {"sampler": sampler, "worker_count": 0, "read_options": None, **options}
    made = grain.DataLoader(data_source=source, operations=operations, **options)
    return [canonical(element) for element in made]


class Squares:
    """A source that reads many records at once."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        return index * index

    def __getitems__(self, indices):
        return [index * index for index in indices]


class Negated(Squares):
    """Overrides one of two methods."""

    def __getitem__(self, index):
        return -super().__getitem__(index)


class Wrapper:
    """A source that delegates missing attributes."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        return {"element": self.source[index]}

    def __getattr__(self, name):
        if name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)


class Unsized:
    """A source without a length."""

    def __getitem__(self, index):
        return index


class Shifted(np.ndarray):
    """An array whose rows differ from its bytes."""

    def __getitem__(self, index):
        return int(super().__getitem__(index)) + 100


def dataclass_transforms(grain):
    @dataclasses.dataclass
    class Rekey(grain.MapTransform):
        names: dict

        def map(self, features):
            return {new: features[old] for new, old in self.names.items()}

    @dataclasses.dataclass(frozen=True)
    class Noise(grain.RandomMapTransform):
        scale: float = 2.0

        def random_map(self, features, rng):
            return {k: v + self.scale * rng.normal() for k, v in features.items()}

    source = [{"a": np.float32(i), "b": np.arange(3) + i} for i in range(11)]
    operations = [Rekey({"y": "a", "x": "b"}), Noise(), grain.Batch(4)]
    return elements_of(grain, source, operations)


def read_of_many(grain):
    sources = Squares(), Negated(), Wrapper(Squares()), Wrapper([*range(11)])
    batch = grain.Batch(batch_size=5, drop_remainder=True)
    return [elements_of(grain, source, [batch]) for source in sources]


def sources_of_all_kinds(grain):
    class Tens(grain.RangeDataSource):
        def __getitem__(self, index):
            return 10 * super().__getitem__(index)

    pairs = [Pair(i, f"name {i}") for i in range(11)]
    sources = (
        Tens(0, 11, 1),
        Unsized(),
        np.arange(11).view(Shifted),
        pairs,
        "abcdefghijk",
    )
    return [elements_of(grain, source) for source in sources]


def shorter_source(grain):
    return elements_of(grain, [5, 6, 7], [grain.Batch(3)])


def jax_elements(grain):
    jax = pytest.importorskip("jax")

    class Tokens:
        def __len__(self):
            return 11

        def __getitem__(self, index):
            return jax.numpy.arange(3) + index

    class AsInput(grain.MapTransform):
        def map(self, batch):
            return {"tokens": batch, "mask": np.ones_like(batch)}

    return elements_of(grain, Tokens(), [grain.Batch(4), AsInput()])


def samplers_of_all_kinds(grain):
    class Halved(grain.IndexSampler):
        def __getitem__(self, index):
            found = super().__getitem__(index)
            key = found.record_key // 2
            return grain.RecordMetadata(found.index, record_key=key, rng=found.rng)

    class Three(grain.SequentialSampler):
        def __len__(self):
            return 3

    class Endless:
        def __getitem__(self, index):
            if index >= 4:
                raise IndexError
            return grain.RecordMetadata(index=index, record_key=index)

    samplers = (
        Halved(11, grain.NoSharding(), True, 1, 3),
        Three(11, grain.NoSharding()),
        Endless(),
    )
    shard = grain.NoSharding()
    return [
        elements_of(grain, [*range(11)], sampler=sampler, shard_options=shard)
        for sampler in samplers
    ]


def batches_of_all_kinds(grain):
    class Own(grain.Batch):
        pass

    nested = [{"n": None, "l": [i, float(i)], "t": (i, b"x" * i)} for i in range(11)]
    return [
        elements_of(grain, nested, [Own(4)]),
        elements_of(grain, [*range(11)], [grain.Batch(4, batch_fn=list)]),
    ]


def old_operations(grain):
    def pad(values):
        return np.pad(values, (0, 11 - len(values)))

    operations = [
        grain.MapOperation(map_function=pad),
        grain.FilterOperation(condition_function=lambda values: values.sum() > 3),
        grain.RandomMapOperation(lambda values, rng: values + rng.integers(9)),
        grain.BatchOperation(batch_size=2, drop_remainder=False),
        grain.MapOperation(map_function=lambda batch: batch + 1),
    ]
    return elements_of(grain, [np.arange(i) for i in range(11)], operations)


def operations_of_ones_own(grain):
    def double(record):
        return grain.Record(record.metadata, record.data * 2)

    def with_metadata(records):
        for record in records:
            meta = record.metadata
            data = (
                record.data,
                meta.index,
                meta.record_key,
                int(meta.rng.integers(99)),
            )
            yield grain.Record(meta, data)

    return elements_of(
        grain, [*range(11)], [functools.partial(map, double), with_metadata]
    )


def several_kinds_at_once(grain):
    class MapAndFilter(grain.MapTransform, grain.FilterTransform):
        def map(self, element):
            return element + 1

        def filter(self, element):
            return False

    class RandomAndMap(grain.RandomMapTransform, grain.MapTransform):
        def map(self, element):
            return element + 1

        def random_map(self, element, rng):
            return -element

    return elements_of(grain, [*range(11)], [MapAndFilter(), RandomAndMap()])


def long_chains(grain):
    class AddOne(grain.MapTransform):
        def map(self, element):
            return element + 1

    return elements_of(grain, [*range(11)], [AddOne()] * 150)


def subclasses_of_loader_and_iterator(grain):
    class Loader(grain.DataLoader):
        def __init__(self, **options):
            super().__init__(**options)
            self.made = 0

        def __iter__(self):
            self.made += 1
            return Iterator(self, None)

    class Iterator(grain.PyGrainDatasetIterator):
        def __next__(self):
            return "own", super().__next__()

    made = Loader(data_source=[*range(4)], sampler=grain.SequentialSampler(4))
    first = iter(made)
    return [isinstance(first, grain.PyGrainDatasetIterator), *first, *made, made.made]


IDIOMS = [
    dataclass_transforms,
    read_of_many,
    sources_of_all_kinds,
    shorter_source,
    jax_elements,
    samplers_of_all_kinds,
    batches_of_all_kinds,
    old_operations,
    operations_of_ones_own,
    several_kinds_at_once,
    long_chains,
    subclasses_of_loader_and_iterator,
]


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.__name__)
def test_idiom_gives_the_same_output(idiom):
    theirs, ours = idiom(ready(THEIRS)), idiom(ready(OURS))
    assert ours == theirs
    assert len(ours) > 1
