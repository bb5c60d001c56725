"""Runs the scenarios of the fault tests, each in a process with a deadline."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import gristmill

DEADLINE_S = 60
PRELUDE = """
import faulthandler
faulthandler.dump_traceback_later({deadline_s} - 5, exit=True)
from faults.toolbox import *
"""


def environment() -> dict[str, str]:
    """That of this process, in which scripts find the helpers and gristmill."""
    places = [str(Path(__file__).parents[1]), str(Path(gristmill.__file__).parents[1])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def text_of(script: str, *, bare: bool, deadline_s: int) -> str:
    """A script as it is run; a bare one is left as it is."""
    prelude = "" if bare else PRELUDE.format(deadline_s=deadline_s)
    return prelude + textwrap.dedent(script)


def run(
    script: str,
    *arguments: object,
    bare: bool = False,
    deadline_s: int = DEADLINE_S,
    command: tuple[str, ...] = (),
) -> str:
    """Run a script to its end and return what it printed.

    Args:
        script: Python text; the helpers of `faults.toolbox` are imported for it.
        arguments: ``sys.argv[1:]`` of the script.
        bare: Whether the text is all there is.
        deadline_s: A script that takes longer is killed, and the test fails with
            the stacks of its threads.
        command: What the interpreter is started by.
    """
    text = text_of(script, bare=bare, deadline_s=deadline_s)
    began = [*command, sys.executable, "-c", text, *map(str, arguments)]
    with _begin(began, subprocess.DEVNULL) as process:
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"not done in {deadline_s} s:\n{out}\n{err}") from None
    assert process.returncode == 0, f"{process.returncode}:\n{out}\n{err}"
    assert "Exception ignored" not in err, err
    return out


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a script in a process group of its own; its pipes are open."""
    text = text_of(script, bare=False, deadline_s=DEADLINE_S)
    began = [sys.executable, "-c", text, *map(str, arguments)]
    return _begin(began, subprocess.PIPE)


def _begin(command: list[str], stdin: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def with_shm_of_its_own(options: str = "size=64m") -> tuple[str, ...]:
    """A command that gives the one after it a /dev/shm that nobody else sees."""
    mount = f'mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$@"'
    return ("unshare", "-m", "sh", "-c", mount, "sh")


def can_mount() -> bool:
    """Whether this user may have a mount namespace of its own."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    return subprocess.run([unshare, "-m", "true"], capture_output=True).returncode == 0
