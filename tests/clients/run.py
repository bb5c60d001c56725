"""Run programs of other packages with their loader and with Gristmill's.

    make clients [ONLY="lightning keras"]
    python -m clients.run --build FOLDER [--lock] [NAME ...]

Writes the result of each client next to its program, and docs/clients.md.  Exits with 1
if a client is not equal.  With `--lock`, writes the locked requirements instead.
"""

import argparse
import json
import pathlib
import signal
import sys

from clients import comparison, environment, page
from clients.client import client_names, read


def main():
    parser = argparse.ArgumentParser(prog="clients.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--lock", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.build.resolve()
    clients = [read(name) for name in arguments.names or client_names()]
    if arguments.lock:
        for client in clients:
            environment.lock(client, folder)
        return 0
    wheel = environment.build_wheel(folder)
    outcomes = []
    for client in clients:
        print(f"{client.title} {client.version()}:", end=" ", flush=True)
        result = comparison.compare(client, wheel, folder)
        client.result.write_text(json.dumps(result, indent=2) + "\n")
        page.write()
        outcomes.append(result["outcome"])
        print(result["outcome"], result.get("detail", ""), flush=True)
    print(f"{outcomes.count('equal')} of {len(outcomes)} clients are equal.")
    return int(set(outcomes) != {"equal"})


if __name__ == "__main__":
    # Exit normally, so that the running program is ended, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
