"""gristmill._hot.draw, compared with NumPy's Philox and Grain's RngPool."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._hot import draw

experimental = pytest.importorskip("grain.experimental")


def numpy_generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


@pytest.mark.parametrize(
    ("seed", "index"),
    [
        (0, 0),
        (42, 7),
        (2**32 - 1, 2**63 - 1),
        (2**64 - 1, 1),
        (2**64 - 1, 2**63 - 1),
        (2**100, 12),
    ],
)
def test_state_equals_a_new_philox(seed: int, index: int) -> None:
    draws = draw.Draws(seed)
    draws.at(3).random(5)
    generator = draws.at(index)
    expected = numpy_generator(seed + index)
    assert repr(generator.bit_generator.state) == repr(expected.bit_generator.state)
    assert generator.normal(size=9).tolist() == expected.normal(size=9).tolist()


def test_half_used_word_is_discarded() -> None:
    draws = draw.Draws(5)
    draws.at(0).integers(0, 100, dtype=np.uint32)
    generator, expected = draws.at(1), numpy_generator(6)
    for _ in range(5):
        assert generator.integers(0, 1 << 20, dtype=np.uint32) == expected.integers(
            0, 1 << 20, dtype=np.uint32
        )


def test_kept_generator_is_not_changed() -> None:
    draws = draw.Draws(1)
    kept = draws.at(0)
    other = draws.at(1)
    assert kept is not other
    assert kept.random() == numpy_generator(1).random()
    assert other.random() == numpy_generator(2).random()


def test_kept_bit_generator_is_not_changed() -> None:
    draws = draw.Draws(1)
    kept = draws.at(0).bit_generator
    draws.at(1).random()
    assert repr(kept.state) == repr(numpy_generator(1).bit_generator.state)


def test_negative_key_raises_error_of_numpy() -> None:
    with pytest.raises(ValueError, match="key must be positive"):
        draw.Draws(-5).at(1)
    assert draw.Draws(-5).at(6).random() == numpy_generator(1).random()


def test_too_large_key_raises_error_of_numpy() -> None:
    with pytest.raises(ValueError, match="less than 2"):
        draw.Draws(2**128).at(0)
    draws = draw.Draws(2**128 - 5)
    assert draws.at(4).random() == numpy_generator(2**128 - 1).random()
    with pytest.raises(ValueError, match="less than 2"):
        draws.at(5)


def reseed(rng: np.random.Generator) -> None:
    rng.bit_generator.state = numpy_generator(77).bit_generator.state


def use_another(rng: np.random.Generator) -> None:
    rng.__init__(np.random.PCG64(1))  # type: ignore[misc]


def jump(rng: np.random.Generator) -> None:
    rng.bit_generator.jumped(3)  # type: ignore[attr-defined]


def in_a_thread(rng: np.random.Generator) -> None:
    thread = threading.Thread(target=rng.random, args=(100,))
    thread.start()
    thread.join()


def pickled(rng: np.random.Generator) -> Any:
    rng.random(3)
    again = pickle.loads(pickle.dumps(rng))
    assert again.random() == rng.random()
    return again


def legacy(rng: np.random.Generator) -> Any:
    return np.random.RandomState(rng.bit_generator)


def half_a_word(rng: np.random.Generator) -> None:
    rng.integers(0, 9, dtype=np.uint32)
    rng.bit_generator.advance(5)  # type: ignore[attr-defined]


USES = [
    reseed,
    use_another,
    jump,
    in_a_thread,
    pickled,
    legacy,
    half_a_word,
    copy.deepcopy,
    lambda rng: rng.bit_generator,
    lambda rng: rng.random,
    lambda rng: rng.bit_generator.lock,
    lambda rng: rng.bit_generator.ctypes,
]


@pytest.mark.parametrize("use", USES)
def test_use_of_a_generator_does_not_affect_the_next(use: Any) -> None:
    draws = draw.Draws(5)
    kept = []
    for index in range(4):
        kept.append(use(draws.at(index)))
        expected = numpy_generator(5 + index)
        assert (
            draws.at(index).normal(size=3).tolist() == expected.normal(size=3).tolist()
        )


def test_spawning_raises_error_of_numpy() -> None:
    for rng in (draw.Draws(5).at(0), numpy_generator(5)):
        with pytest.raises(TypeError, match="does not implement spawning"):
            rng.spawn(2)


def test_draws_pickle() -> None:
    again = pickle.loads(pickle.dumps(draw.Draws(9)))
    assert again.at(1).random() == numpy_generator(10).random()


def test_draws_reuse_one_generator() -> None:
    draws = draw.Draws(0)
    first = id(draws.at(0))
    assert id(draws.at(1)) == first


def restarted(seed: Any, index: int, op_seed: int = 0) -> np.random.Generator:
    """Return the generator that Grain would use, by NumPy's public interface."""
    bits = np.random.Philox(seed)
    state: Any = bits.state
    state["state"]["counter"] = np.array([0, 0, op_seed, index], np.uint64)
    bits.state = state
    return np.random.Generator(bits)


SEEDS = [0, 42, 2**32 - 1, 2**200 + 1, np.uint32(955475868), [3, 1], np.arange(4)]


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
def test_op_draws_state_equals_philox_with_counter(seed: Any) -> None:
    draws = draw.OpDraws(seed, 5)
    for index in (0, 7, 2**40, 2**63 - 1, np.int64(3)):
        draws.at(3).integers(0, 9, dtype=np.uint32)
        generator = draws.at(index)
        expected = restarted(seed, index, 5)
        assert repr(generator.bit_generator.state) == repr(expected.bit_generator.state)
        assert generator.normal(size=9).tolist() == expected.normal(size=9).tolist()


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**70) | st.lists(st.integers(0, 2**32 - 1), min_size=1),
    index=st.integers(0, 2**64 - 1),
    op_seed=st.integers(0, 2**64 - 1),
)
def test_op_draws_match_grain(seed: Any, index: int, op_seed: int) -> None:
    pool = experimental.RngPool(seed)
    expected = pool.acquire_rng(index, op_seed=op_seed).random(5).tolist()
    assert draw.OpDraws(seed, op_seed).at(index).random(5).tolist() == expected


@pytest.mark.parametrize("use", USES)
def test_use_of_an_op_generator_does_not_affect_the_next(use: Any) -> None:
    draws = draw.OpDraws(5)
    kept = []
    for index in range(4):
        kept.append(use(draws.at(index)))
        expected = restarted(5, index)
        assert (
            draws.at(index).normal(size=3).tolist() == expected.normal(size=3).tolist()
        )


def test_kept_op_generator_is_not_changed() -> None:
    draws = draw.OpDraws(1)
    kept, kept_bits = draws.at(0), draws.at(1).bit_generator
    draws.at(2).random()
    assert kept.random() == restarted(1, 0).random()
    assert repr(kept_bits.state) == repr(restarted(1, 1).bit_generator.state)


def test_op_generator_spawns() -> None:
    (child,) = draw.OpDraws(5).at(3).spawn(1)
    (expected,) = np.random.Generator(np.random.Philox(5)).spawn(1)
    assert child.random() == expected.random()


@pytest.mark.parametrize("index", [-1, -(2**63), 2**64])
def test_index_outside_64_bits_overflows(index: int) -> None:
    with pytest.raises(OverflowError, match=rf"index .* got {index}"):
        draw.OpDraws(3).at(index)
    with pytest.raises(OverflowError, match=rf"op_seed .* got {index}"):
        draw.OpDraws(3, index)
    generator = restarted(3, 8)
    with pytest.raises(OverflowError, match=rf"index .* got {index}"):
        draw.restart(generator, index)
    with pytest.raises(OverflowError):
        experimental.RngPool(3).acquire_rng(index)


@pytest.mark.parametrize("index", [1.0, "1", None])
def test_index_must_be_an_int(index: Any) -> None:
    with pytest.raises(TypeError):
        draw.OpDraws(3).at(index)


@pytest.mark.parametrize(
    ("seed", "error"), [(-1, ValueError), ("3", TypeError), (0.5, TypeError)]
)
def test_invalid_seed_raises_error_of_numpy(seed: Any, error: Any) -> None:
    with pytest.raises(error) as expected:
        np.random.Philox(seed)
    with pytest.raises(error) as found:
        draw.OpDraws(seed)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
def test_op_draws_pickle(seed: Any) -> None:
    again = pickle.loads(pickle.dumps(draw.OpDraws(seed, 2)))
    assert again.op_seed == 2
    assert again.at(1).random() == restarted(seed, 1, 2).random()


def test_op_draws_reuse_one_generator() -> None:
    draws = draw.OpDraws(0)
    first = id(draws.at(0))
    assert id(draws.at(1)) == first


def test_restart_keeps_the_key() -> None:
    generator = np.random.Generator(np.random.Philox(8))
    generator.integers(0, 9, dtype=np.uint32)
    draw.restart(generator, 4, 3)
    expected = restarted(8, 4, 3)
    assert repr(generator.bit_generator.state) == repr(expected.bit_generator.state)
    assert generator.random() == expected.random()


def test_only_philox_restarts() -> None:
    with pytest.raises(TypeError, match="Philox, got one of a PCG64"):
        draw.restart(np.random.default_rng(0), 1)
