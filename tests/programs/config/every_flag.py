"""Parses all of Grain's flags, after imports of the given modules in this order."""

# ruff: noqa: E402
import importlib
import sys

for name in sys.argv[1:]:
    module = importlib.import_module(name)
    if name == "gristmill.drop_in":
        module.install()

from absl import flags

from gristmill.config import OPTIONS, config

flags.FLAGS(
    [
        "program",
        "--grain_py_debug_mode",
        "--grain_py_traceback_filtering=off",
        "--grain_tf_lookup_batch_size=7",
    ]
)
assert all(f"grain_{name}" in flags.FLAGS for name in OPTIONS)
assert "grain_enable_multiprocess_worker_profiling" in flags.FLAGS
print(config.py_debug_mode, config.py_traceback_filtering, config.tf_lookup_batch_size)
