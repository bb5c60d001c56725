"""Bad arguments of `share`, and loaders that it cannot share, raise clear errors."""

import pytest

import gristmill
from gristmill import MultiprocessingOptions, ShardOptions, host

RANK = {"name": "unused", "rank": 0, "ranks": 2}


def load(**options):
    return gristmill.load(range(8), num_epochs=1, **{"worker_count": 1, **options})


def chain(processes=1, **options):
    dataset = gristmill.MapDataset.range(8).to_iter_dataset()
    return dataset.mp_prefetch(MultiprocessingOptions(processes), **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"mode": "deel"}, ValueError, "mode must be one of 'deal', 'broadcast', got"),
        ({"name": 3}, TypeError, "name must be a str that is not empty, got 3"),
        ({"name": ""}, TypeError, "name must be a str that is not empty, got ''"),
        ({"rank": 1.0}, TypeError, "rank must be an int"),
        ({"rank": True}, TypeError, "rank must be an int"),
        ({"ranks": "2"}, TypeError, "ranks must be an int"),
        ({"ahead": None}, TypeError, "ahead must be an int"),
        ({"rank": 2}, ValueError, r"rank must be in \[0, ranks - 1\], got 2 of 2"),
        ({"rank": -1}, ValueError, r"rank must be in \[0, ranks - 1\], got -1 of 2"),
        ({"ranks": 0}, ValueError, "ranks must be at least 1, got 0"),
        ({"ahead": 0}, ValueError, "ahead must be at least 1, got 0"),
    ],
)
def test_bad_argument_raises_error_with_its_value(options, error, text):
    with pytest.raises(error, match=text):
        host.share(load(), **{**RANK, **options})


def test_missing_rank_without_launcher_raises_error(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="share needs name=, ranks=: this process has"):
        host.share(load(), rank=0)
    with pytest.raises(
        ValueError, match=r"share needs rank=: .* on this host, and jax"
    ):
        host.share(load(), name="unused", ranks=2, mode="broadcast")


class Backend:
    """Workers of another kind."""

    buffer, units_at_once = 1, 1

    def workers(self, *_):
        raise AssertionError

    def processes(self):
        return 1


@pytest.mark.parametrize(
    ("loader", "text"),
    [
        (load(worker_count=0), "this one has worker_count=0"),
        (load(worker_count="auto"), "worker_count='auto'.* and streams=1 for the same"),
        (load(workers=Backend()), "this one has workers=<"),
        (load(shard_options=ShardOptions(1, 2)), "it has shard 1 of 2"),
        (load(shard_options=ShardOptions(0, 4)), "it has shard 0 of 4"),
        (gristmill.MapDataset.range(8).to_iter_dataset(), "this one has 0. End it"),
        (
            gristmill.IterDataset.mix([chain(), chain()], weights=[1, 1]),
            "this one has 2. Share one of its parts",
        ),
        (chain(0, streams=2), "its mp_prefetch has num_workers=0"),
        (chain("auto"), "its mp_prefetch has num_workers='auto'"),
        (chain(workers=Backend()), "its mp_prefetch has workers=<"),
    ],
)
def test_loader_that_cannot_be_shared_raises_error(loader, text):
    with pytest.raises(ValueError, match=text):
        host.share(loader, **RANK)


def test_workers_of_wrong_type_name_share():
    with pytest.raises(TypeError, match=r"call gristmill\.host\.share\(loader\)"):
        load(workers=2)


@pytest.mark.parametrize("loader", [None, [1, 2], gristmill.MapDataset.range(3)])
def test_other_kind_of_loader_raises_type_error(loader):
    with pytest.raises(TypeError, match=r"loader must be a gristmill\.DataLoader, an"):
        host.share(loader, **RANK)


def test_source_that_cannot_be_sliced_cannot_be_dealt():
    class Source(gristmill.IterDataset):
        def __iter__(self):
            raise AssertionError

    shared = Source().mp_prefetch(MultiprocessingOptions(1))
    with pytest.raises(ValueError, match="Cannot slice `IterDataset` source"):
        host.share(shared, **RANK)
