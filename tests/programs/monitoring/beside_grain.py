"""Records metrics in a program that imports Grain, which has metrics of the same names.

Arguments: the actions "grain" and "start", in order.
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
for _ in range(2):  # Metrics registered later are omitted only from the second time on.
    text = prometheus_client.generate_latest().decode()
print(text)
