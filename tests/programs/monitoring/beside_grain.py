"""Records metrics in a program that imports Grain, which has its own of these names.

Arguments: what is done, in this order: "grain" and "start".
"""

import importlib
import sys

import prometheus_client
from absl import flags

import gristmill

flags.FLAGS.mark_as_parsed()
for what in sys.argv[1:]:
    if what == "grain":
        importlib.import_module("grain")
    else:
        gristmill.monitoring.start()
list(gristmill.MapDataset.range(10).to_iter_dataset())
for _ in range(2):  # Those that came later are left out from the second look on.
    text = prometheus_client.generate_latest().decode()
print(text)
