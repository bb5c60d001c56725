"""set_state rejects a value that is not a state of the chain, and changes nothing."""

import copy
import itertools
import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

import gristmill as g
from gristmill import experimental as ex
from gristmill import transforms
from gristmill.errors import StateMismatch

NO_THREADS = g.ReadOptions(num_threads=0)


class Twice(transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, x):
        return [x, x + 100]


def numbers(n=12):
    return g.MapDataset.range(n).to_iter_dataset(NO_THREADS)


def draw(x, rng):
    return x + int(rng.integers(5))


def sequences():
    elements = [{"x": np.arange(1, n)} for n in (3, 4, 2, 6, 3, 5, 2)]
    return g.MapDataset.source(elements).to_iter_dataset(NO_THREADS)


def packed(ds):
    return ex.FirstFitPackIterDataset(
        ds, length_struct={"x": 8}, num_packing_bins=2, shuffle_bins=False
    )


WORKERS = g.MultiprocessingOptions(num_workers=2)
CHAINS = {
    "to_iter": lambda: numbers(),
    "map": lambda: numbers().map(str),
    "filter": lambda: numbers().filter(lambda x: x % 3),
    "batch": lambda: numbers().batch(3),
    "map_with_index": lambda: numbers().map_with_index(lambda i, x: (i, x)),
    "random_map": lambda: numbers().random_map(draw, seed=1),
    "limit": lambda: ex.LimitIterDataset(numbers(), 8),
    "repeat": lambda: ex.RepeatIterDataset(numbers(4), 3),
    "cache": lambda: ex.RepeatIterDataset(ex.CacheIterDataset(numbers(4)), 3),
    "zip": lambda: g.IterDataset.zip([numbers(), numbers().map(str)]),
    "mix": lambda: g.IterDataset.mix([numbers(), numbers().random_map(draw, seed=2)]),
    "named mix": lambda: g.IterDataset.mix({"a": numbers(), "b": numbers(5)}),
    "flat map": lambda: ex.FlatMapIterDataset(numbers(), Twice()),
    "block map": lambda: numbers().block_map(list, 5),
    "buckets": lambda: numbers().bucket_by_sequence_length(abs, [5, 9], [3, 2, 4]),
    "rebatch": lambda: ex.RebatchIterDataset(numbers().batch(5), 2),
    "window": lambda: ex.WindowShuffleIterDataset(numbers(), window_size=5, seed=1),
    "packing": lambda: packed(sequences()),
    "split": lambda: ex.ConcatThenSplitIterDataset(sequences(), length_struct={"x": 4}),
    "thread": lambda: ex.ThreadPrefetchIterDataset(
        numbers().map_with_index(lambda i, x: x), prefetch_buffer_size=2
    ),
    "interleave": lambda: ex.InterleaveIterDataset(
        [numbers(n).random_map(draw, seed=n) for n in (2, 5, 3, 4)], cycle_length=2
    ),
    "replayed": lambda: g.IterDataset.from_iterable(
        range(12), replay=True
    ).map_with_index(lambda i, x: (i, x)),
    "arithmetic streams": lambda: numbers().batch(2).mp_prefetch(WORKERS),
    "streams": lambda: numbers().random_map(draw, seed=1).mp_prefetch(WORKERS),
    "streams here": lambda: (
        numbers()
        .random_map(draw, seed=1)
        .mp_prefetch(g.MultiprocessingOptions(0), streams=2)
        .map_with_index(lambda i, x: (i, x))
    ),
    "elastic": lambda: ex.ElasticIterator(g.MapDataset.range(12), 3, g.NoSharding()),
    "elastic stream": lambda: ex.ElasticIterator(
        numbers().map_with_index(lambda i, x: x), 3, g.NoSharding()
    ),
    "several": lambda: g.IterDataset.zip(
        [packed(sequences()).map_with_index(lambda i, x: x), numbers()], strict=False
    ),
}
# Chains that start workers at the first next().
WITH_WORKERS = ("arithmetic streams", "streams")


def plain(elements):
    return repr(elements)


def states_of(name, most=4):
    """Return states of a chain: the first, and up to `most` later ones."""
    iterator = iter(CHAINS[name]())
    states = [iterator.get_state()]
    if name not in WITH_WORKERS:
        for _ in itertools.islice(iterator, most):
            states.append(copy.deepcopy(iterator.get_state()))
    return states


JUNK = [None, 0, -1, 7, 2.5, True, "text", b"bytes", [], [1], {}, {"x": 1}, object()]


def same_state(left, right):
    return json.dumps(left) == json.dumps(right)


def parts_of(state, path=()):
    """Yield the path of each part of a state."""
    yield path
    if isinstance(state, dict):
        for key in state:
            yield from parts_of(state[key], (*path, key))
    elif isinstance(state, (list, tuple)):
        for place, part in enumerate(state):
            yield from parts_of(part, (*path, place))


def replaced(state, path, value):
    """Return the state with the part at a path replaced."""
    if not path:
        return value
    changed = list(state) if isinstance(state, tuple) else copy.copy(state)
    changed[path[0]] = replaced(state[path[0]], path[1:], value)
    return changed


def without(state, path):
    """Return the state without the key at a path, or with a longer list there."""
    *above, last = path
    holder = state
    for key in above:
        holder = holder[key]
    holder = copy.copy(holder)
    if isinstance(holder, dict):
        del holder[last]
    else:
        holder = [*holder, 1]
    return replaced(state, above, holder)


def refuse_or_take(name, state):
    """Return whether a state is accepted; check that rejection changes nothing."""
    iterator = iter(CHAINS[name]())
    if name not in WITH_WORKERS:
        next(iterator)
    before = copy.deepcopy(iterator.get_state())
    given = copy.deepcopy(state) if not has_object(state) else state
    try:
        iterator.set_state(given)
    except StateMismatch as error:
        assert "expected" in str(error) or "estore" in str(error), error
    except IndexError as error:
        assert str(error).startswith("Checkpoint `next_index`")
    else:
        return True
    assert same_state(iterator.get_state(), before)
    if name not in WITH_WORKERS:
        rest = plain(list(iterator))
        fresh = iter(CHAINS[name]())
        next(fresh)
        assert rest == plain(list(fresh))
    return False


def has_object(state):
    if isinstance(state, dict):
        return any(map(has_object, state.values()))
    if isinstance(state, (list, tuple)):
        return any(map(has_object, state))
    return type(state) is object


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: type(junk).__name__)
def test_invalid_state_is_rejected(name, junk):
    assert not refuse_or_take(name, junk)


@pytest.mark.parametrize("name", CHAINS)
def test_state_with_missing_part_is_rejected(name):
    for state in states_of(name):
        for path in parts_of(state):
            if path and path[-1] != "future_states" and "future_states" not in path:
                if name == "named mix" and path[:-1] == ("parents",):
                    continue  # Mixtures accept new parts.
                assert not refuse_or_take(name, without(state, path)), path


@pytest.mark.parametrize("name", CHAINS)
def test_only_states_of_the_same_form_are_accepted(name):
    mine = states_of(name)[0]
    for other in CHAINS:
        for state in states_of(other, 1):
            if refuse_or_take(name, state):
                assert form(state) == form(mine) or name == other, other


def form(state):
    """Return the structure of a state, without its values."""
    if isinstance(state, dict):
        return {key: form(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [form(value) for value in state]
    return None


VALID = dict.fromkeys(CHAINS)


@pytest.mark.parametrize("name", [n for n in CHAINS if n not in WITH_WORKERS])
@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(data=strategies.data())
def test_corrupted_states_change_nothing(name, data):
    VALID[name] = VALID[name] or states_of(name)
    state = data.draw(strategies.sampled_from(VALID[name]))
    paths = list(parts_of(state))
    for _ in range(data.draw(strategies.integers(1, 2))):
        path = data.draw(strategies.sampled_from(paths))
        value = data.draw(
            strategies.one_of(
                strategies.sampled_from(JUNK[:-1]),
                strategies.integers(-(2**70), 2**70),
                strategies.floats(),
                strategies.text(max_size=3),
            )
        )
        try:
            state = replaced(state, path, value)
        except (KeyError, IndexError, TypeError):
            continue  # The first replacement removed this part.
    refuse_or_take(name, state)


@pytest.mark.parametrize("name", CHAINS)
def test_valid_states_are_accepted_as_json_and_numpy(name):
    def with_numpy(state):
        if isinstance(state, dict):
            return {key: with_numpy(value) for key, value in state.items()}
        if isinstance(state, (list, tuple)):
            return [with_numpy(value) for value in state]
        return np.int64(state) if type(state) is int else state

    for state in states_of(name):
        iterator = iter(CHAINS[name]())
        iterator.set_state(json.loads(json.dumps(state)))
        assert same_state(iterator.get_state(), state)
        iterator.set_state(with_numpy(state))


def test_error_names_found_and_expected_keys():
    iterator = iter(CHAINS["limit"]())
    for state, text in [
        (
            {"next_index": 3},
            "LimitDatasetIterator.*: the state has the keys ['next_index'], expected a"
            " dict with 'parent', 'count_elements_read'. Restore a state to the chain"
            " that saved it.",
        ),
        (
            b"{}",
            "the state is b'{}' (bytes), expected a dict with 'parent'",
        ),
        (
            {"parent": {"next_index": "3"}, "count_elements_read": 1},
            "the state has next_index '3' (str), expected an int",
        ),
        (
            {"parent": {"next_index": 3}, "count_elements_read": -1},
            "the state has count_elements_read -1, expected an int in [0, 2**63)",
        ),
    ]:
        with pytest.raises(StateMismatch) as caught:
            iterator.set_state(state)
        assert text.rpartition(".*")[2] in str(caught.value)


class Own(g.DatasetIterator):
    """A user's iterator with a state of its own form."""

    def __init__(self, parent):
        super().__init__(parent)
        self.seen = 0

    def __next__(self):
        self.seen += 1
        return next(self._parent)

    def get_state(self):
        return {"mine": self.seen, "above": self._parent.get_state()}

    def set_state(self, state):
        self._parent.set_state(state["above"])
        self.seen = state["mine"]


class OwnDataset(g.IterDataset):
    def __iter__(self):
        return Own(iter(self._parent))


def test_user_iterator_checks_its_own_state():
    iterator = iter(OwnDataset(numbers()).map_with_index(lambda i, x: (i, x)))
    next(iterator)
    state = iterator.get_state()
    next(iterator)
    with pytest.raises(KeyError, match="above"):
        iterator.set_state({"parent": {"other": 1}, "counter": 5})
    with pytest.raises(StateMismatch, match="has the keys"):
        iterator.set_state({"parent": {"above": {"x": 1}, "mine": 1}, "counter": 5})
    assert iterator.get_state()["counter"] == 2
    iterator.set_state(state)
    assert next(iterator) == (1, 1)


def test_state_after_the_last_epoch_is_rejected():
    long = iter(ex.RepeatIterDataset(numbers(2), 9))
    for _ in range(12):
        next(long)
    with pytest.raises(StateMismatch, match="has epoch 5, expected at most 3"):
        iter(ex.RepeatIterDataset(numbers(2), 3)).set_state(long.get_state())
