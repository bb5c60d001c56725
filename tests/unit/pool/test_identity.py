"""Equal pipelines have equal descriptions in every program; different ones do not."""

import functools
import operator
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import gristmill
from gristmill._pool import identity
from gristmill._pool.identity import digest_of
from support import extras


class Scale(gristmill.MapTransform):
    def __init__(self, by, also=None):
        self.by = by
        self.also = also

    def map(self, element):
        return element * self.by


def add(n):
    return lambda x: x + n


def made():
    """Return values that all differ from each other."""
    own = Scale(1)
    own.also = own
    return [
        None,
        1,
        True,
        1.0,
        "1",
        b"1",
        bytearray(b"2"),
        [1, 2],
        (1, 2),
        [2, 1],
        {1, 2},
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        list(range(1000)),
        list(range(1001)),
        [*range(500), 0, *range(501, 1000)],
        range(10),
        range(11),
        np.arange(3),
        np.arange(3.0),
        np.frombuffer(b"1", np.uint8),
        np.arange(4),
        np.float32(3),
        Scale,
        Scale(2),
        Scale(3),
        Scale(Scale(2)),
        own,
        add,
        add(1),
        add(2),
        lambda x: x + 1,
        lambda x: x - 1,
        functools.partial(operator.add, 1),
        functools.partial(operator.add, 2),
        operator.add,
        np,
        gristmill.ShardOptions(0, 2),
        gristmill.ShardOptions(1, 2),
        gristmill.IndexSampler(10, num_epochs=1),
        gristmill.IndexSampler(10, num_epochs=2),
        {1: {"ab", "cd", "ef"}},
    ]


def test_different_values_have_different_descriptions():
    assert len({digest_of(value) for value in made()}) == len(made())


def test_descriptions_are_equal_in_another_process():
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tests.unit.pool.test_identity import *\n"
        "print(*map(digest_of, made()), sep='\\n')"
    )
    there = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert there.stdout.split() == [digest_of(value) for value in made()]


def test_tensors_of_torch_count_by_their_values():
    extras.need("torch")
    import torch

    def make():
        return [
            torch.arange(6),
            torch.arange(6).reshape(2, 3),
            torch.tensor(3),
            torch.arange(6.0),
            torch.arange(1, 7),
            torch.zeros(0, 3),
            torch.ones(2, dtype=torch.bfloat16),
            torch.ones(2).to_sparse(),
        ]

    # Both are alive, so their addresses differ, which pickles of tensors contain.
    one, other = make(), make()
    first, second = [*map(digest_of, one)], [*map(digest_of, other)]
    assert first[:-1] == second[:-1]
    assert len({*first}) == 8


def test_array_counts_by_its_values_in_any_layout():
    rows = np.arange(12).reshape(3, 4)
    strided = np.repeat(rows, 2, axis=1)[:, ::2]
    for other in (np.asfortranarray(rows), strided):
        assert digest_of(other) == digest_of(rows)
    dates = np.array(["2026-11-27"], "datetime64[D]")
    assert digest_of(dates) != digest_of(dates + np.timedelta64(1, "D"))
    assert digest_of(np.array([{1}])) != digest_of(np.array([{2}]))


def test_large_array_counts_by_blocks_unless_whole(monkeypatch):
    monkeypatch.setattr(identity, "MAX_ARRAY_BYTES", 1 << 10)
    monkeypatch.setattr(identity, "BLOCKS", 4)
    monkeypatch.setattr(identity, "BLOCK_BYTES", 64)
    large = np.zeros(10_000, np.uint8)
    found = {True: [], False: []}
    for changed in (None, 0, 63, 64, 5_000, 9_999):
        large[:] = 0
        if changed is not None:
            large[changed] = 1
        for whole in (True, False):
            found[whole].append(digest_of([large], whole_arrays=whole))
    assert len({*found[True]}) == 6
    first, start, end_of_block, after_block, middle, last = found[False]
    assert first == after_block == middle
    assert len({first, start, end_of_block, last}) == 4


def test_digest_of_long_list_takes_little_memory():
    texts = [bytes([number % 256]) * 10_000 for number in range(500)]
    tracemalloc.start()
    try:
        digest_of(texts)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_open_files_count_by_their_kind(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    with path.open() as one, path.open() as other:
        assert digest_of(Scale(one)) == digest_of(Scale(other))


@pytest.mark.parametrize("size", [10, 300])
def test_large_value_is_described_in_part(size):
    nested = [[[number] * 100 for number in range(100)] for _ in range(size)]
    assert digest_of(nested) == digest_of([*nested])
