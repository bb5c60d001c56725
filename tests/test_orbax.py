"""A DataLoader's position beside a model's checkpoint, in either library's hands."""

import asyncio

import pytest

import gristmill as g
from faults.scripts import run

pytest.importorskip("orbax.checkpoint")
pytest.importorskip("grain")

# Saves after three batches and restores to a new iterator, through Orbax.
MANAGED = """
import importlib, sys
import orbax.checkpoint as ocp
from test_orbax import loader

def manager():
    return ocp.CheckpointManager({folder!r})

saving, restoring = sys.argv[1:]
iterator = iter(loader(saving))
for _ in range(3):
    next(iterator)
save = importlib.import_module(saving + ".checkpoint").CheckpointSave
with manager() as saved:
    saved.save(7, args=ocp.args.Composite(data=save(iterator)))
    saved.wait_until_finished()
rest = [batch.tolist() for batch in iterator]

again = iter(loader(restoring))
restore = importlib.import_module(restoring + ".checkpoint").CheckpointRestore
with manager() as saved:
    found = saved.restore(7, args=ocp.args.Composite(data=restore(again)))
assert found["data"] is again
assert [batch.tolist() for batch in again] == rest and len(rest) == 7
"""


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
    code = MANAGED.format(folder=str(tmp_path / "run"))
    run(code, saving, restoring, bare=True, deadline_s=120)


# Saves and restores in the ways of Orbax's users: a dict of checkpointers, handlers
# by name, a registry, and a handler of one's own over ours.  Nothing has asked for
# CheckpointSave before a handler is made.
USES = """
import dataclasses, sys
import orbax.checkpoint as ocp
import gristmill.python as grain
from test_orbax import loader

class Own(grain.PyGrainCheckpointHandler, ocp.CheckpointHandler):
    pass

@ocp.args.register_with_handler(Own, for_save=True)
@dataclasses.dataclass
class OwnSave(ocp.args.CheckpointArgs):
    item: object

@ocp.args.register_with_handler(Own, for_restore=True)
@dataclasses.dataclass
class OwnRestore(ocp.args.CheckpointArgs):
    item: object

def registry():
    made = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for args in (grain.PyGrainCheckpointSave, grain.PyGrainCheckpointRestore):
        made.add("data", args, grain.PyGrainCheckpointHandler)
    return made

def checkpointers(folder):
    checkpointer = ocp.Checkpointer(grain.PyGrainCheckpointHandler())
    manager = ocp.CheckpointManager(folder, {{"data": checkpointer}})
    return manager, lambda item: dict(items={{"data": item}}), None, None

def by_name(folder):
    handlers = {{"data": grain.PyGrainCheckpointHandler()}}
    manager = ocp.CheckpointManager(folder, item_names=["data"], item_handlers=handlers)
    args = grain.PyGrainCheckpointSave, grain.PyGrainCheckpointRestore
    return manager, None, *args

def by_registry(folder):
    manager = ocp.CheckpointManager(folder, handler_registry=registry())
    return manager, None, grain.PyGrainCheckpointSave, grain.PyGrainCheckpointRestore

def own(folder):
    return ocp.CheckpointManager(folder), None, OwnSave, OwnRestore

def passed(wrap, kind, item):
    return wrap(item) if wrap else dict(args=ocp.args.Composite(data=kind(item)))

manager, wrap, save, restore = {use}({folder!r})
iterator = iter(loader())
next(iterator)
with manager:
    manager.save(1, **passed(wrap, save, iterator))
    manager.wait_until_finished()
    again = iter(loader())
    manager.restore(1, **passed(wrap, restore, again))
assert next(again).tolist() == next(iterator).tolist()
"""


@pytest.mark.multiprocess
@pytest.mark.parametrize("use", ["checkpointers", "by_name", "by_registry", "own"])
def test_ways_to_use_the_handler(tmp_path, use):
    code = USES.format(folder=str(tmp_path / "run"), use=use)
    run(code, bare=True, deadline_s=120)


# Saves after three batches in the background, beside arrays, by Orbax's newer API.
SAVED_ASYNC = """
import sys
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint.experimental.v1 as ocp
from test_orbax import loader, wrapped

iterator = wrapped({wrapper!r}, loader())
for _ in range(3):
    next(iterator)
model = {{"w": jnp.ones(3)}}
saving = ocp.save_checkpointables_async({folder!r}, dict(data=iterator, model=model))
rest = [np.asarray(next(iterator)).tolist()]
saving.result()
rest += [np.asarray(batch).tolist() for batch in iterator]

again = wrapped({wrapper!r}, loader())
found = ocp.load_checkpointables({folder!r}, dict(data=again, model=model))
assert found["data"] is again
assert [np.asarray(batch).tolist() for batch in again] == rest and len(rest) == 7
"""


def wrapped(wrapper, made):
    """Return an iterator over a loader, through an adapter."""
    if wrapper == "jax":
        return g.jax.prefetch_to_device(made)
    return g.torch.as_tensors(made) if wrapper == "torch" else iter(made)


@pytest.mark.multiprocess
@pytest.mark.parametrize("wrapper", ["none", "jax", "torch"])
def test_iterators_are_checkpointables_of_orbax(tmp_path, wrapper):
    pytest.importorskip(wrapper if wrapper != "none" else "jax")
    code = SAVED_ASYNC.format(folder=str(tmp_path / "run"), wrapper=wrapper)
    run(code, bare=True, deadline_s=120)


class Creating:
    """A folder that Orbax is about to make."""

    def __init__(self, folder):
        self.folder = folder

    async def await_creation(self):
        self.folder.mkdir()
        return self.folder


async def saved_by(iterator, folder):
    """Save as Orbax does: write in the background, go on meanwhile."""
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
def test_async_protocol_saves_the_state_of_the_call(tmp_path, saving, restoring):
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
def test_handler_restores_and_begins_to_prefetch(tmp_path, wrapper):
    pytest.importorskip(wrapper if wrapper != "none" else "jax")
    handler = g.checkpoint.CheckpointHandler()
    iterator = wrapped(wrapper, loader())
    next(iterator)
    handler.save(tmp_path, iterator)
    again = wrapped(wrapper, loader())
    assert handler.restore(tmp_path, again) is again
    assert next(again).tolist() == next(iterator).tolist()
