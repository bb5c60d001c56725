import subprocess
import sys

import gristmill as g
from faults.toolbox import loader


class Run(g.MapTransform):
    def map(self, x):
        text = "import signal; print(signal.getsignal(2).__name__)"
        out = subprocess.run(
            [sys.executable, "-S", "-c", text], capture_output=True, text=True
        )
        return out.stdout.strip()


found = list(loader([Run()], records=2, batch=0))
assert found == ["default_int_handler"] * 2, found
