"""Tests of functions as operations: each gets an iterator, and errors explain this."""

import dataclasses
import functools
import json
import traceback

import numpy as np
import pytest

import gristmill as g
from gristmill import operations

COUNT = 8


def outputs(library, steps, source=range(COUNT), **arguments):
    sampler = library.SequentialSampler(COUNT, library.NoSharding())
    loader = library.DataLoader(
        data_source=source, sampler=sampler, operations=steps, **arguments
    )
    return [np.asarray(output).tolist() for output in loader]


def error_text(steps, **arguments):
    with pytest.raises(Exception) as caught:
        outputs(g, steps, **arguments)
    return "".join(traceback.format_exception(caught.value))


class Doubled:
    def __call__(self, x):
        return 2 * x


def add(x, y):
    return x + y


def each_plus_one(records):
    for record in records:
        yield record + 1


def none(records):
    pass


def elements(records):
    for record in records:
        yield {"image": record.data}


NOT_FOR_ITERATORS = {
    "arithmetic": lambda x: x + 1,
    "a comparison": lambda x: x > 3,
    "a subscript": lambda x: x["image"],
    "a method": lambda x: x.lower(),
    "json": json.loads,
    "another signature": add,
    "an object": Doubled(),
    "a partial": functools.partial(add, 1),
    "an array": np.asarray,
    "a stack": np.stack,
    "a number": len,
    "text": str.__str__,
    "nothing": none,
    "one record": next,
    "arithmetic of records": each_plus_one,
    "elements": elements,
}


@pytest.mark.parametrize("name", NOT_FOR_ITERATORS)
def test_error_of_element_function_mentions_iterator(name):
    text = error_text([NOT_FOR_ITERATORS[name], g.Batch(4)])
    assert text.count("operations[0] (") == 1
    assert "gets an iterator of all Records" in text
    assert "pass an instance of a MapTransform" in text


@pytest.mark.multiprocess
def test_worker_error_of_function_mentions_iterator():
    text = error_text([lambda x: x + 1], worker_count=1)
    assert "'RecordIterator' and 'int'" in text
    assert "operations[0] (" in text
    assert "gets an iterator of all Records" in text


class Plus(g.MapTransform):
    def map(self, x):
        return x + 1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Plus, "operations[0] must be an instance, got the class Plus. Pass Plus()"),
        (
            g.Batch,
            "operations[0] must be an instance, got the class Batch. Pass Batch()",
        ),
        (operations.MapOperation, "must be an instance, got the class MapOperation"),
        (int, "operations[0] must return an iterator, got the class int"),
        (list, "pass an instance of a MapTransform"),
        ([Plus()], "FlatMap or Batch), got list."),
        (None, "FlatMap or Batch), got NoneType."),
    ],
)
def test_invalid_operation_is_refused_at_once(step, message):
    with pytest.raises(TypeError) as caught:
        g.load(range(COUNT), transformations=[Plus(), step][1:])
    assert message.replace("operations", "transformations") in str(caught.value)


class Passing:
    """Iterates over the given records."""

    def __init__(self, records):
        self._records = records

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._records)


@dataclasses.dataclass
class OnlyData:
    data: int


def only_data(records):
    return (OnlyData(record.data) for record in records)


def pairs(records):
    return ((record.metadata, record) for record in records)


def of_pairs(pairs):
    return (record for _, record in pairs)


def plus_one(records):
    for record in records:
        record.data += 1
        yield record


def odd(library):
    class Odd(library.FilterTransform):
        def filter(self, x):
            return x % 2

    return Odd()


ITERATING = {
    "a generator": lambda library: [plus_one, library.Batch(4)],
    "a filter": lambda library: [lambda records: filter(None, records)],
    "a class": lambda library: [Passing, library.Batch(4)],
    "iter": lambda library: [iter],
    "records with data alone": lambda library: [only_data],
    "a filter of these": lambda library: [only_data, odd(library)],
    "another function between": lambda library: [pairs, of_pairs, library.Batch(4)],
}


@pytest.mark.parametrize("name", ITERATING)
def test_iterator_function_matches_grain(name):
    import grain.python as grain  # Imported here, so that workers need not import it.

    make = ITERATING[name]
    source = [*range(COUNT)]
    assert outputs(g, make(g), source) == outputs(grain, make(grain), source)


class Bad:
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        raise LookupError("a bad record")


@pytest.mark.parametrize("step", [plus_one, lambda records: iter([*records])])
def test_record_error_does_not_mention_operations(step):
    text = error_text([step], source=Bad())
    assert "a bad record" in text
    assert "operations[0]" not in text
