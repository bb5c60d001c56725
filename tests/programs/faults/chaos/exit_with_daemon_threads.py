import sys

from faults.scripts import run

for number in range(5):
    run("faults/chaos/used_by_daemon_threads", sys.argv[1], 0.1 + number / 10)
