"""gristmill._hot.draw and its twin, against NumPy's own Philox."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from gristmill._hot import draw as hot
from gristmill._slow import draw as slow


@pytest.fixture(params=[hot, slow], ids=["hot", "slow"])
def draw(request: pytest.FixtureRequest) -> Any:
    return request.param


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
def test_state_is_that_of_a_new_philox(draw: Any, seed: int, index: int) -> None:
    draws = draw.Draws(seed)
    draws.at(3).random(5)
    generator = draws.at(index)
    expected = numpy_generator(seed + index)
    assert repr(generator.bit_generator.state) == repr(expected.bit_generator.state)
    assert generator.normal(size=9).tolist() == expected.normal(size=9).tolist()


def test_a_half_used_word_is_forgotten(draw: Any) -> None:
    draws = draw.Draws(5)
    draws.at(0).integers(0, 100, dtype=np.uint32)
    generator, expected = draws.at(1), numpy_generator(6)
    for _ in range(5):
        assert generator.integers(0, 1 << 20, dtype=np.uint32) == expected.integers(
            0, 1 << 20, dtype=np.uint32
        )


def test_a_kept_generator_is_not_touched(draw: Any) -> None:
    draws = draw.Draws(1)
    kept = draws.at(0)
    other = draws.at(1)
    assert kept is not other
    assert kept.random() == numpy_generator(1).random()
    assert other.random() == numpy_generator(2).random()


def test_a_kept_bit_generator_is_not_touched(draw: Any) -> None:
    draws = draw.Draws(1)
    kept = draws.at(0).bit_generator
    draws.at(1).random()
    assert repr(kept.state) == repr(numpy_generator(1).bit_generator.state)


def test_a_negative_key_is_numpy_s_error(draw: Any) -> None:
    with pytest.raises(ValueError, match="key must be positive"):
        draw.Draws(-5).at(1)
    assert draw.Draws(-5).at(6).random() == numpy_generator(1).random()


def test_a_key_too_large_is_numpy_s_error(draw: Any) -> None:
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


@pytest.mark.parametrize(
    "use",
    [
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
    ],
)
def test_whatever_a_step_does_with_one_draw_the_next_is_new(
    draw: Any, use: Any
) -> None:
    draws = draw.Draws(5)
    kept = []
    for index in range(4):
        kept.append(use(draws.at(index)))
        expected = numpy_generator(5 + index)
        assert (
            draws.at(index).normal(size=3).tolist() == expected.normal(size=3).tolist()
        )


def test_spawning_is_numpy_s_error(draw: Any) -> None:
    for rng in (draw.Draws(5).at(0), numpy_generator(5)):
        with pytest.raises(TypeError, match="does not implement spawning"):
            rng.spawn(2)


def test_pickles(draw: Any) -> None:
    again = pickle.loads(pickle.dumps(draw.Draws(9)))
    assert again.at(1).random() == numpy_generator(10).random()


def test_one_generator_is_used_again() -> None:
    draws = hot.Draws(0)
    first = id(draws.at(0))
    assert id(draws.at(1)) == first
