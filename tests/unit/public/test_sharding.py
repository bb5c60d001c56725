"""Tests that shards match Grain's."""

import dataclasses
import pickle
import sys
import types

import pytest

from gristmill import sharding

grain = pytest.importorskip("grain")


@pytest.mark.parametrize("shard", [(0, 0), (0, -1), (2, 2), (-1, 2)])
def test_error_of_bad_shards_matches_grain(shard):
    with pytest.raises(ValueError) as theirs:
        grain.sharding.ShardOptions(*shard)
    with pytest.raises(ValueError) as ours:
        sharding.ShardOptions(*shard)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("name", ["NoSharding", "ShardByJaxProcess"])
def test_reprs_and_values_match_grain(name):
    ours, theirs = getattr(sharding, name)(), getattr(grain.sharding, name)()
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert pickle.loads(pickle.dumps(ours)) == ours
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours.shard_index = 1


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_splits_match_grain(drop_remainder):
    from grain._src.core import sharding as theirs

    for count in range(1, 6):
        for shard in range(count):
            for n in range(14):
                options = (shard, count, drop_remainder)
                ours = sharding.even_split(n, sharding.ShardOptions(*options))
                assert ours == theirs.even_split(n, theirs.ShardOptions(*options))


def test_dropped_remainder_is_logged(caplog):
    sharding.even_split(7, sharding.ShardOptions(0, 2, True))
    assert "Dropping 1 of 7 records" in caplog.text


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def test_torch_shard_without_environment_is_one_shard(no_torch):
    assert sharding.ShardByTorchProcess(True) == sharding.ShardByTorchProcess(True)
    assert dataclasses.astuple(sharding.ShardByTorchProcess()) == (0, 1, False)


def test_torch_shard_is_read_from_environment(no_torch, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert dataclasses.astuple(sharding.ShardByTorchProcess(True)) == (3, 8, True)


@pytest.mark.parametrize(
    ("rank", "world", "words"),
    [("1", None, "no WORLD_SIZE"), (None, "2", "no RANK"), ("a", "2", "integers")],
)
def test_incomplete_environment_is_refused(no_torch, monkeypatch, rank, world, words):
    for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words):
        sharding.ShardByTorchProcess()


def test_process_group_overrides_environment(no_torch, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    group = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 1,
        get_world_size=lambda: 2,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert dataclasses.astuple(sharding.ShardByTorchProcess()) == (1, 2, False)


@pytest.mark.parametrize("shard", [("0", 1), (0, 1.0), (None, 1)])
def test_non_int_shard_is_refused(shard):
    with pytest.raises(TypeError, match=r"^shard_(index|count) must be an int, got"):
        sharding.ShardOptions(*shard)
