import os

import gristmill  # noqa: F401

print(os.environ["PROMETHEUS_MULTIPROC_DIR"])
