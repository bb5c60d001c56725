"""Tests of saving a DataLoader's position with Orbax, by Grain or Gristmill."""

import asyncio

import pytest

import gristmill as g
from faults.scripts import run

pytest.importorskip("orbax.checkpoint")
pytest.importorskip("grain")


def loader(library="gristmill"):
    """Return a loader of ten shuffled batches of four."""
    if library == "grain":
        import grain.python as legacy
    else:
        import gristmill.python as legacy
    return legacy.DataLoader(
        data_source=legacy.RangeDataSource(0, 40, 1),
        sampler=legacy.IndexSampler(
            40, legacy.NoSharding(), shuffle=True, num_epochs=1, seed=5
        ),
        operations=[legacy.Batch(4)],
    )


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("saving", "restoring"),
    [("gristmill", "gristmill"), ("gristmill", "grain"), ("grain", "gristmill")],
)
def test_checkpoint_manager_saves_and_restores(tmp_path, saving, restoring):
    run("orbax/managed", saving, restoring, tmp_path / "run", deadline_s=120)


@pytest.mark.multiprocess
@pytest.mark.parametrize("use", ["checkpointers", "by_name", "by_registry", "own"])
def test_handler_works_in_all_ways_of_use(tmp_path, use):
    run("orbax/ways_of_use", use, tmp_path / "run", deadline_s=120)


def wrapped(wrapper, made):
    """Return an iterator over a loader, through an adapter."""
    if wrapper == "jax":
        return g.jax.prefetch_to_device(made)
    return g.torch.as_tensors(made) if wrapper == "torch" else iter(made)


@pytest.mark.multiprocess
@pytest.mark.parametrize("wrapper", ["none", "jax", "torch"])
def test_iterators_are_orbax_checkpointables(tmp_path, wrapper):
    pytest.importorskip(wrapper if wrapper != "none" else "jax")
    program = "orbax/saved_in_the_background"
    run(program, wrapper, tmp_path / "run", deadline_s=120)


class Creating:
    """A folder that Orbax creates when awaited."""

    def __init__(self, folder):
        self.folder = folder

    async def await_creation(self):
        self.folder.mkdir()
        return self.folder


async def saved_by(iterator, folder):
    """Save like Orbax: write in the background while iteration continues."""
    writing = await iterator.save(Creating(folder))
    assert not folder.exists()
    following = next(iterator)
    await writing
    return following


async def loaded_by(iterator, folder):
    await (await iterator.load(folder))
    return next(iterator)


@pytest.mark.parametrize("restoring", ["gristmill", "grain"])
@pytest.mark.parametrize("saving", ["gristmill", "grain"])
def test_async_save_writes_state_at_time_of_call(tmp_path, saving, restoring):
    from etils import epath

    folder = epath.Path(tmp_path) / "data"
    iterator = iter(loader(saving))
    next(iterator)
    state = iterator.get_state()
    expected = asyncio.run(saved_by(iterator, folder))
    [file] = folder.iterdir()
    assert (file.name, file.read_bytes()) == ("process_0-of-1.json", state)
    found = asyncio.run(loaded_by(iter(loader(restoring)), folder))
    assert found.tolist() == expected.tolist()


def test_async_load_names_a_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"process_0-of-1\.json does not exist"):
        asyncio.run(loaded_by(iter(loader()), tmp_path))


@pytest.mark.parametrize("wrapper", ["none", "jax", "torch"])
def test_handler_restores_and_starts_prefetch(tmp_path, wrapper):
    pytest.importorskip(wrapper if wrapper != "none" else "jax")
    handler = g.checkpoint.CheckpointHandler()
    iterator = wrapped(wrapper, loader())
    next(iterator)
    handler.save(tmp_path, iterator)
    again = wrapped(wrapper, loader())
    assert handler.restore(tmp_path, again) is again
    assert next(again).tolist() == next(iterator).tolist()
