import importlib
import sys

first, second = (
    importlib.import_module(f"{name}.checkpoint") for name in sys.argv[1:3]
)
save, restore = first.CheckpointSave, second.CheckpointRestore
assert second.CheckpointSave

import orbax.checkpoint as ocp  # noqa: E402

from unit.public.test_checkpoint import STATES, Iterator  # noqa: E402

folder = sys.argv[3]
manager = ocp.CheckpointManager(folder)
manager.save(1, args=ocp.args.Composite(data=save(item=Iterator(STATES[0]))))
manager.wait_until_finished()
item = Iterator(b"")
manager = ocp.CheckpointManager(folder)
manager.restore(1, args=ocp.args.Composite(data=restore(item=item)))
assert item.state == STATES[0], item.state
