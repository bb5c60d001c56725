"""Pipelines whose states are archived, and the classes that they use.

A stored file contains the text of its pipeline, so the meaning of a name here must
never change. Add a new name instead.
"""

import json

import numpy as np

import gristmill
from gristmill import experimental, python


class Add(gristmill.MapTransform):
    """Adds a number."""

    def __init__(self, number):
        self.number = number

    def map(self, element):
        return element + self.number


class Draw(gristmill.RandomMapTransform):
    """Pairs an element with one random integer below 1000."""

    def random_map(self, element, rng):
        return element, int(rng.integers(1000))


class Number(gristmill.MapWithIndex):
    """Pairs an element with its index."""

    def map_with_index(self, index, element):
        return index, element


class Odd(gristmill.FilterTransform):
    """Keeps odd numbers."""

    def filter(self, element):
        return bool(element % 2)


class Repeat(experimental.FlatMapTransform):
    """Makes `element % 4` copies of each element."""

    max_fan_out = 3

    def flat_map(self, element):
        return [element] * (element % 4)


class Lengthen(gristmill.MapTransform):
    """Makes an array of `element % 4 + 1` items."""

    def map(self, element):
        return {"x": np.arange(element % 4 + 1)}


class AddToPrevious:
    """A legacy operation that holds one record back and yields pairs of neighbors."""

    def __call__(self, records):
        held = next(records, None)
        for record in records:
            yield gristmill.Record(record.metadata, (held.data, record.data))
            held = record


class Backwards:
    """A sampler that goes backwards through the data and draws with PCG64."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        return gristmill.RecordMetadata(index, self.count - 1 - index, rng)

    def __repr__(self):
        return f"Backwards({self.count})"


TEN = "data_source=RangeDataSource(0, 10, 1)"
IN_ORDER = "sampler=IndexSampler(10, num_epochs=1)"
SHUFFLED = "sampler=IndexSampler(10, shuffle=True, num_epochs=3, seed=7)"
CHAIN = "gristmill.MapDataset.range(10).seed(7).shuffle().repeat(3)"
LENGTHS = "gristmill.MapDataset.range(10).map(Lengthen()).to_iter_dataset()"
COMPLETE = "sampler=IndexSampler(65537, shuffle=True, num_epochs=1, seed=3)"

PIPELINES = {
    "in_order": f"DataLoader(data_source=list(range(10)), {IN_ORDER})",
    "endless": f"DataLoader({TEN}, sampler=SequentialSampler(10, seed=1), "
    "operations=[Draw(), Number()])",
    "batches": f"DataLoader({TEN}, {SHUFFLED}, operations=[Add(1), Batch(4)])",
    "batches_of_batches": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Batch(2, drop_remainder=True), Batch(3)])",
    "array": f"DataLoader(data_source=np.arange(20.0).reshape(10, 2), {SHUFFLED}, "
    "operations=[Batch(4)])",
    "dict_of_arrays": "DataLoader(data_source={'x': np.arange(10), 'y': np.ones(10)}, "
    f"{SHUFFLED}, operations=[Batch(4)])",
    "second_of_two_shards": f"DataLoader({TEN}, sampler=IndexSampler("
    "10, ShardOptions(1, 2, drop_remainder=True), True, 3, 7), "
    "operations=[Draw(), Batch(2)])",
    "two_workers": f"DataLoader({TEN}, {SHUFFLED}, operations=[Draw(), Batch(3)], "
    "worker_count=2)",
    "three_streams": f"DataLoader({TEN}, {SHUFFLED}, operations=[Draw()], streams=3)",
    "three_streams_of_two_workers": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Batch(3)], worker_count=2, streams=3)",
    "filter": f"DataLoader({TEN}, {SHUFFLED}, operations=[Odd(), Draw(), Batch(4)])",
    "filter_in_two_workers": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Odd(), Batch(2)], worker_count=2)",
    "flat_map": f"DataLoader({TEN}, {SHUFFLED}, operations=[Repeat(), Draw()])",
    "flat_map_in_batches": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Repeat(), Batch(4), Draw()])",
    "two_flat_maps": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Repeat(), Repeat(), Odd()])",
    "flat_map_in_two_workers": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Repeat()], worker_count=2)",
    "flat_map_in_three_streams": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Repeat()], streams=3)",
    "old_operations": f"DataLoader({TEN}, {SHUFFLED}, operations=["
    "MapOperation(Add(1).map), BatchOperation(4)])",
    "legacy_operation": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[AddToPrevious(), Draw()])",
    "legacy_operation_in_two_workers": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[AddToPrevious()], worker_count=2)",
    "legacy_operation_after_flat_map": f"DataLoader({TEN}, {SHUFFLED}, "
    "operations=[Repeat(), AddToPrevious()])",
    "complete_permutation": "DataLoader("
    f"data_source=RangeDataSource(0, 65537, 1), {COMPLETE}, operations=[Batch(8192)], "
    "worker_count=0)",
    "own_sampler": f"DataLoader({TEN}, sampler=Backwards(10), operations=[Draw()], "
    "shard_options=NoSharding())",
    "chain": f"{CHAIN}.random_map(Draw()).to_iter_dataset()",
    "chain_of_batches": f"{CHAIN}.map(Add(1)).to_iter_dataset().batch(4)",
    "chain_that_filters": f"{CHAIN}.to_iter_dataset().filter(Odd()).batch(2)",
    "chain_that_flattens": "experimental.FlatMapIterDataset("
    f"{CHAIN}.to_iter_dataset(), Repeat())",
    "chain_in_two_workers": f"{CHAIN}.to_iter_dataset().random_map(Draw()).batch(2)"
    ".mp_prefetch(MultiprocessingOptions(num_workers=2))",
    "mixture": f"gristmill.IterDataset.mix([{CHAIN}.to_iter_dataset(), "
    "gristmill.MapDataset.range(100, 120).to_iter_dataset()], [2, 1])",
    "mixture_by_tokens": "gristmill.IterDataset.mix({"
    f"'a': {LENGTHS}, 'b': {LENGTHS}}}, gristmill.MixSchedule(["
    "(0, {'a': 1, 'b': 0}), (9, {'a': 1, 'b': 2})], unit='tokens', ramp=True), "
    "unit='tokens', tokens='x', epochs=2, at_end='drop')",
    "planned_mixture": f"gristmill.MapDataset.mix([{CHAIN}, {CHAIN}], [2, 1], "
    "unit='tokens', lengths=[range(1, 11), range(2, 12)]).to_iter_dataset()",
    "planned_packs": "gristmill.MapDataset.range(10).map(Lengthen()).pack({'x': 8}, "
    "lengths=[1, 2, 3, 4, 1, 2, 3, 4, 1, 2]).seed(7).shuffle().to_iter_dataset()",
    "window_shuffle": "experimental.WindowShuffleIterDataset("
    f"{CHAIN}.to_iter_dataset(), window_size=4, seed=3)",
    "packs": f"experimental.FirstFitPackIterDataset({LENGTHS}, "
    "length_struct={'x': 8}, num_packing_bins=2)",
    "packs_that_split": f"experimental.ConcatThenSplitIterDataset({LENGTHS}, "
    "length_struct={'x': 8})",
}


def as_json(state):
    """Return a state as stored; the state of a `DataLoader` is JSON as bytes."""
    return json.loads(state if isinstance(state, bytes) else json.dumps(state))


def as_given(kept, iterator):
    """Return a stored state in the form that the iterator returns."""
    if isinstance(iterator.get_state(), bytes):
        return json.dumps(kept, indent=4).encode()
    return kept


def build(text):
    """Build the loader or chain that a text of `PIPELINES` describes."""
    names = {name: getattr(python, name) for name in python.__all__}
    return eval(text, {**names, **globals()})


def literal(element):
    """Return an element in a form that JSON supports, including dtypes."""
    if isinstance(element, tuple):
        return [literal(part) for part in element]
    if isinstance(element, dict):
        return {key: literal(value) for key, value in element.items()}
    if isinstance(element, np.ndarray):
        # The first items of a long array are enough to detect a changed order.
        return [str(element.dtype), list(element.shape), element.flat[:12].tolist()]
    return element
