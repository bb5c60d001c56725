import dataclasses
import sys

import orbax.checkpoint as ocp

import gristmill.python as grain
from unit.peers.test_orbax import loader

# Saves and restores like users of Orbax: with a dict of checkpointers, with handlers by
# name, with a registry, and with a handler derived from ours. CheckpointSave is not
# accessed before a handler is made.


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
    manager = ocp.CheckpointManager(folder, {"data": checkpointer})
    return manager, lambda item: {"items": {"data": item}}, None, None


def by_name(folder):
    handlers = {"data": grain.PyGrainCheckpointHandler()}
    manager = ocp.CheckpointManager(folder, item_names=["data"], item_handlers=handlers)
    args = grain.PyGrainCheckpointSave, grain.PyGrainCheckpointRestore
    return manager, None, *args


def by_registry(folder):
    manager = ocp.CheckpointManager(folder, handler_registry=registry())
    return manager, None, grain.PyGrainCheckpointSave, grain.PyGrainCheckpointRestore


def own(folder):
    return ocp.CheckpointManager(folder), None, OwnSave, OwnRestore


def passed(wrap, kind, item):
    return wrap(item) if wrap else {"args": ocp.args.Composite(data=kind(item))}


USES = {
    "checkpointers": checkpointers,
    "by_name": by_name,
    "by_registry": by_registry,
    "own": own,
}
manager, wrap, save, restore = USES[sys.argv[1]](sys.argv[2])
iterator = iter(loader())
next(iterator)
with manager:
    manager.save(1, **passed(wrap, save, iterator))
    manager.wait_until_finished()
    again = iter(loader())
    manager.restore(1, **passed(wrap, restore, again))
assert next(again).tolist() == next(iterator).tolist()
