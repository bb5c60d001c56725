"""Runs the program of a client with both loaders, and compares what it yields."""

import contextlib
import datetime
import json
import os
import platform
import re
import shutil
import signal
import subprocess

from clients import environment
from clients.client import HERE, ROOT

RECORD = HERE / "inside" / "record.py"
TIMEOUT_S = 900
# Characters of a line of an error or a difference that the page shows.
SHOWN = 300
# The same on every machine: no accelerator, no network, one order of sets and sums.
SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


class Failed(Exception):
    """A program ended with an error."""


def compare(client, wheel, folder):
    """Return the result of a client, as a dict of texts and numbers.

    Raises:
        environment.NotInstalled: There is nothing to run.
    """
    result = {
        "client": client.name,
        "version": client.version(),
        "inputs": client.inputs(),
        "python": platform.python_version(),
        "gristmill": _version_of_checkout(),
        "date": datetime.date.today().isoformat(),
        "command": f"make clients ONLY={client.name}",
    }
    python = environment.prepare(client, wheel, folder)
    try:
        theirs = run(client, "peer", python, folder)
        ours = run(client, "gristmill", python, folder)
        detail = difference(theirs, ours)
        if detail and difference(theirs, run(client, "peer", python, folder)):
            detail += " Two runs with the peer's loader differ, too."
    except Failed as error:
        return result | {"outcome": "failed", "detail": str(error)}
    result |= {"values": len(ours[0]), **ours[1]}
    if detail:
        return result | {"outcome": "different", "detail": detail}
    return result | {"outcome": "equal"}


def run(client, loader, python, folder):
    """Return the lines that a program yields and the facts of its run.

    Raises:
        Failed: The program ended with an error.
    """
    place = folder / client.name / loader
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "program.py").write_text(client.program(loader))
    drop_in = ["-m", "gristmill.drop_in"] if client.drop_in else []
    command = [python, *(drop_in if loader == "gristmill" else [])]
    command += [RECORD, place, client.peer, loader]
    settings = {**os.environ, **SETTINGS, **client.environment}
    with open(place / "log.txt", "w") as log:
        running = subprocess.Popen(
            [*map(str, command)],
            cwd=place,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = running.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = f"none after {TIMEOUT_S} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    if status != 0:
        error = _last_error((place / "log.txt").read_text())
        owner = client.peer if loader == "peer" else "Gristmill"
        raise Failed(f"With {owner}'s loader, exit status {status}: {error[:SHOWN]}")
    facts = json.loads((place / "facts.json").read_text())
    return (place / "values.txt").read_text().splitlines(), facts


def _last_error(log):
    """Return the last line of a log that looks like an error, or else the last one."""
    lines = ["", *filter(None, log.splitlines())]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return (errors or lines)[-1]


def difference(theirs, ours):
    """Return the first difference of two runs as a text, or None."""
    if not theirs[0]:
        return "The program yielded nothing."
    if theirs[1].get("batches") == 0:
        return "The program took no batch from a loader of torch."
    for old, new in zip(theirs[0], ours[0], strict=False):
        if old != new:
            return f"The peer gave {old[:SHOWN]!r}, and Gristmill {new[:SHOWN]!r}."
    if len(theirs[0]) != len(ours[0]):
        return f"The peer gave {len(theirs[0])} values, and Gristmill {len(ours[0])}."
    if theirs[1] != ours[1]:
        return f"The peer's run had {theirs[1]}, and Gristmill's {ours[1]}."
    return None


def _version_of_checkout():
    """Return the commit, with "-dirty" if files differ that no run writes."""
    written = (":!docs/clients.md", ":!tests/clients/*/result.json")
    differ = _git("status", "--porcelain", "--", ".", *written)
    return _git("describe", "--always") + ("-dirty" if differ else "")


def _git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()
