import os
import pathlib
import sys

import gristmill as g
from faults.toolbox import digest, loader, undisturbed

sys.path[:0] = [pathlib.Path("/nonexistent"), "/with'quotes\"\n", "/\udcff"]
sys.argv.append("\udcff")
os.environb[b"ODD"] = b"\xff\xfe=\n"
for number in range(2000):
    os.environ[f"LONG_{number}"] = "x" * 400


class Look(g.MapTransform):
    def map(self, x):
        assert os.environb[b"ODD"] == b"\xff\xfe=\n"
        assert sys.argv[-1] == "\udcff" and sys.path[2] == "/\udcff"
        return x


assert digest(loader([Look()])) == undisturbed([])
