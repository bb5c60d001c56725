import sys

from absl import flags

from gristmill.config import config

assert config.py_debug_mode is False  # The flags have not been parsed.
flags.FLAGS(["program", *sys.argv[1:]])
print(config.py_debug_mode, config.tf_lookup_batch_size)
