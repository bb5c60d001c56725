"""Tests of datasets that change in the middle of an epoch, without workers."""

import numpy as np
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from gristmill._torch.batches.native import native_fetch
from gristmill.torch import DataLoader, StatefulDataLoader
from support.deferring import make_element, records, steps
from torch_loader.watched import canonical

import gristmill as g  # isort: skip

ROWS = 12
LOADERS = (DataLoader, StatefulDataLoader)


def tensors(offset=0):
    columns = torch.arange(2 * ROWS).reshape(ROWS, 2) + offset, torch.arange(ROWS)
    return TensorDataset(*columns)


def array(offset=0):
    return np.arange(2.0 * ROWS).reshape(ROWS, 2) + offset


def leaves():
    return st.sampled_from([tensors, array, lambda: torch.arange(ROWS) * 10])


def branches(children):
    """Return a strategy for functions that make a dataset from other datasets."""
    indices = st.lists(st.integers(0, ROWS - 1), min_size=ROWS, max_size=ROWS)
    subsets = st.builds(
        lambda make, chosen: lambda: Subset(make(), list(chosen)), children, indices
    )
    ranges = st.builds(lambda make: lambda: Subset(make(), range(ROWS)), children)
    pairs = st.tuples(children, children)
    stacks = pairs.map(lambda makes: lambda: StackDataset(*(fit(m()) for m in makes)))
    named = pairs.map(
        lambda makes: lambda: StackDataset(x=fit(makes[0]()), y=fit(makes[1]()))
    )
    concats = st.builds(
        lambda make, count: lambda: ConcatDataset([make() for _ in range(count)]),
        children,
        st.integers(1, 3),
    )
    return subsets | ranges | stacks | named | concats


def fit(dataset):
    """Cut a dataset to `ROWS` rows."""
    return dataset if len(dataset) == ROWS else Subset(dataset, range(ROWS))


TREES = st.recursive(leaves(), branches, max_leaves=4)


def nodes_of(dataset):
    """Return a dataset and all datasets inside it."""
    parts = getattr(dataset, "datasets", ())
    parts = list(parts.values() if isinstance(parts, dict) else parts)
    if isinstance(dataset, Subset):
        parts = [dataset.dataset]
    return [dataset, *(node for part in parts for node in nodes_of(part))]


def change(dataset, how):
    """Change a dataset in one of the ways that its class allows."""
    changes = CHANGES[type(dataset)]
    changes[how % len(changes)](dataset)


def _change_indices(subset):
    subset.indices = list(subset.indices)[::-1]


def _set_each_index(subset):
    if isinstance(subset.indices, list):
        for place in range(len(subset.indices)):
            subset.indices[place] = 7


def _append_index(subset):
    if isinstance(subset.indices, list):
        subset.indices.append(3)
        subset.indices.pop(0)


def _set_range(subset):
    subset.indices = range(ROWS - 1, -1, -1)


def _set_array_of_indices(subset):
    subset.indices = np.arange(len(subset.indices))[::-1]


def _set_dataset(subset):
    subset.dataset = StackDataset(tensors(500), array(7))


def _set_tensors(dataset):
    dataset.tensors = tensors(100).tensors


def _set_list_of_tensors(dataset):
    dataset.tensors = [*tensors(200).tensors]


def _set_other_columns(dataset):
    dataset.tensors = dataset.tensors[:1]


def _write_rows(dataset):
    dataset.tensors[0].add_(1000)


def _replace_first_part(dataset):
    parts = dataset.datasets
    if isinstance(parts, tuple):
        dataset.datasets = (tensors(300), *parts[1:])
    else:
        parts[next(iter(parts)) if isinstance(parts, dict) else 0] = tensors(300)


def _reverse_parts(dataset):
    parts = dataset.datasets
    if isinstance(parts, dict):
        dataset.datasets = dict(reversed(parts.items()))
    else:
        dataset.datasets = parts[::-1]


def _drop_part(dataset):
    if isinstance(dataset.datasets, dict):
        dataset.datasets.pop("y", None)
    else:
        dataset.datasets = dataset.datasets[:1]


def _append_part(concat):
    concat.datasets.append(tensors(400))
    concat.cumulative_sizes.append(concat.cumulative_sizes[-1] + ROWS)


def _set_sizes(concat):
    concat.cumulative_sizes = [size + 1 for size in concat.cumulative_sizes]


CHANGES = {
    TensorDataset: [
        _set_tensors, _set_list_of_tensors, _set_other_columns, _write_rows
    ],
    np.ndarray: [lambda rows: rows.__iadd__(50), lambda rows: rows[::-1].sort(0)],
    torch.Tensor: [
        lambda rows: rows.neg_(), lambda rows: rows.resize_(ROWS - 2),
        lambda rows: setattr(rows, "data", torch.ones(ROWS, 3)),
    ],
    Subset: [
        _change_indices, _set_each_index, _append_index, _set_range, _set_dataset,
        _set_array_of_indices,
    ],
    StackDataset: [_replace_first_part, _reverse_parts, _drop_part],
    ConcatDataset: [_replace_first_part, _append_part, _set_sizes, _reverse_parts],
}  # fmt: skip


def seen(loader_class, make, changes, **options):
    """Return an epoch whose dataset changes before some batches."""
    torch.manual_seed(4)
    dataset = make()
    batches = iter(loader_class(dataset, **options))
    found = []
    for step in range(2 * ROWS):
        for where, how in changes.get(step, ()):
            nodes = nodes_of(dataset)
            change(nodes[where % len(nodes)], how)
        try:
            found.append(canonical(next(batches)))
        except StopIteration:
            break
        except Exception as error:
            found.append((type(error), str(error)))
    return found


@given(
    TREES,
    st.dictionaries(
        st.integers(1, 5),
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=2),
        max_size=3,
    ),
    st.booleans(),
    st.sampled_from([1, 3, 5]),
)
@settings(max_examples=120)
def test_changes_in_an_epoch_match_torch(make, changes, shuffle, batch_size):
    options = {"batch_size": batch_size, "shuffle": shuffle}
    expected = seen(torch.utils.data.DataLoader, make, changes, **options)
    for loader_class in LOADERS:
        assert seen(loader_class, make, changes, **options) == expected


MAKES = {
    TensorDataset: tensors,
    np.ndarray: array,
    torch.Tensor: lambda: torch.arange(ROWS),
    Subset: lambda: Subset(tensors(), list(range(ROWS))),
    StackDataset: lambda: StackDataset(x=tensors(), y=array()),
    ConcatDataset: lambda: ConcatDataset([tensors(), tensors(40)]),
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [(kind, how) for kind, changes in CHANGES.items() for how in range(len(changes))],
)
def test_rows_after_each_kind_of_change_match_torch(kind, how):
    options = {"batch_size": 2, "sampler": [4, 9, 2, 7, 1, 3, 9, 5, 0, 8, 12, 23, 30]}
    make, changes = MAKES[kind], {2: [(0, how)]}
    expected = seen(torch.utils.data.DataLoader, make, changes, **options)
    assert expected != seen(torch.utils.data.DataLoader, make, {}, **options)
    for loader_class in LOADERS:
        assert seen(loader_class, make, changes, **options) == expected


def refuse(batch):
    raise AssertionError(f"fetched {batch} row by row")


@pytest.mark.parametrize("kind", [TensorDataset, Subset, StackDataset, ConcatDataset])
def test_changed_dataset_is_still_gathered_natively(kind):
    dataset = MAKES[kind]()
    fetch = native_fetch(dataset, refuse)
    fetch([0, 1])
    change(dataset, 0)
    assert repr(fetch([2, 0])) == repr(
        torch.utils.data.default_collate([dataset[2], dataset[0]])
    )


@pytest.mark.parametrize("name", ["indices", "dataset"])
def test_changed_subset_of_deferred_steps_matches_torch(name):
    def chain(eager, seed):
        pairs = [make_element("dict", each, i) for i, each in enumerate(records(ROWS))]
        decode, add = steps(eager, pairs[0][1])
        source = g.MapDataset.source([element for element, _ in pairs])
        return source.seed(seed).map(decode).random_map(add)

    def given(loader_class, eager):
        subset = Subset(chain(eager, 3), list(range(ROWS)))
        batches = iter(loader_class(subset, 3))
        found = [repr(next(batches))]
        changed = {"indices": [*range(ROWS)][::-1], "dataset": chain(eager, 8)}
        setattr(subset, name, changed[name])
        return [*found, *map(repr, batches)]

    assert given(DataLoader, False) == given(torch.utils.data.DataLoader, True)
