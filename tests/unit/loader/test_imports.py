"""Tests which modules a program imports if it makes a loader but no dataset."""

import subprocess
import sys

import pytest

from faults.scripts import environment

CODE = """
import sys
import gristmill as grain

sampler = grain.IndexSampler(10, shuffle=True, seed=0, num_epochs=1)
operations = [grain.Batch(5)]
loader = grain.DataLoader(data_source=range(10), sampler=sampler, operations=operations)
assert len(list(loader)) == 2
print([name for name in ("asyncio", "gristmill._dataset") if name in sys.modules])
"""


@pytest.mark.multiprocess
def test_loader_does_not_import_datasets():
    found = subprocess.check_output(
        [sys.executable, "-c", CODE], text=True, env=environment()
    )
    assert found == "[]\n"
