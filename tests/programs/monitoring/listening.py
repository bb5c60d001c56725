import sys

import gristmill  # noqa: F401
from programs.monitoring.addresses import print_listening

print_listening(int(sys.argv[1]))
