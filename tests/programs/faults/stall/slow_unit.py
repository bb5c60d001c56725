"""One record takes longer than 20 others, until the report about it ends it."""

import os
import re
import sys

import gristmill
from gristmill._engine import remote
from programs.faults.stall.stalls import Warnings

RECORDS, SLOW = 200, 150
face, gate = sys.argv[1:]


class Opening(Warnings):
    """Opens the gate when a warning is logged."""

    def emit(self, record):
        super().emit(record)
        if self.texts:
            os.close(os.open(gate, os.O_WRONLY))


class Wait(gristmill.MapTransform):
    def map(self, x):
        if x == SLOW:
            wait_at_the_gate()
        return x


def wait_at_the_gate():
    os.close(os.open(gate, os.O_RDONLY))


os.mkfifo(gate)
warned = Opening("It has spent")
remote.SLOW_S = 0.2
if face == "loader":
    elements = gristmill.DataLoader(
        data_source=range(RECORDS),
        sampler=gristmill.SequentialSampler(RECORDS),
        operations=[Wait()],
        worker_count=1,
    )
else:
    elements = gristmill.MapDataset.range(RECORDS).map(Wait()).to_iter_dataset()
    elements = elements.mp_prefetch(gristmill.MultiprocessingOptions(num_workers=1))
assert list(elements) == list(range(RECORDS))
(text,) = warned.texts
assert re.match(
    "Worker 0 works on .* s on this unit of stream 0; earlier units took .* s", text
)
assert "in wait_at_the_gate" in text, text
