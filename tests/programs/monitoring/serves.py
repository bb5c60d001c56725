import sys

from gristmill import monitoring
from programs.monitoring.addresses import print_listening

port = int(sys.argv[1])
monitoring.serve(port, *sys.argv[2:])
print_listening(port)
