import sys

import gristmill.checkpoint

assert not [name for name in sys.modules if name.startswith("orbax")]
sys.modules["orbax"] = None
assert not hasattr(gristmill.checkpoint, "CheckpointSave")
