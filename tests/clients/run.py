"""Run programs of other packages with their loader and with Gristmill's.

    make clients [ONLY="lightning keras"]
    python -m clients.run --build FOLDER [--lock] [NAME ...]

Writes the result of each client next to its program, and docs/clients.md.  A client
whose packages cannot be installed keeps its last result.  Exits with 1 if a client is
not equal.  With `--lock`, writes the locked requirements instead.
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
    return compare_all(clients, folder)


def compare_all(clients, folder):
    """Run clients, print a line for each, and return the exit status."""
    rest = [client.name for client in clients]
    try:
        wheel = environment.build_wheel(folder)
        for client in clients:
            if compare(client, wheel, folder) == "equal":
                rest.remove(client.name)
    except environment.NotInstalled as error:
        print(error)
    except KeyboardInterrupt:
        print("interrupted.")
    print(f"{len(clients) - len(rest)} of {len(clients)} clients are equal.")
    if rest:
        print(f'To run the others again: make clients ONLY="{" ".join(rest)}"')
    return int(bool(rest))


def compare(client, wheel, folder):
    """Run a client, write and print its result, and return the outcome."""
    print(f"{client.title} {client.version()}:", end=" ", flush=True)
    try:
        result = comparison.compare(client, wheel, folder)
    except environment.NotInstalled as error:
        detail = f"Its packages were not installed: {error}"
        result = {"outcome": "not run", "detail": detail}
    else:
        client.result.write_text(json.dumps(result, indent=2) + "\n")
        page.write()
    print(
        *filter(None, [result["outcome"], result.get("detail")]), sep=": ", flush=True
    )
    return result["outcome"]


if __name__ == "__main__":
    # Exit normally, so that the running program is ended, too.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
