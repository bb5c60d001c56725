"""Runs the programs of tests, each in its own process with a deadline.

The programs of tests/unit/test_y.py are the files in tests/programs/y, those of
tests/x/test_y.py the files in tests/programs/x/y. Code shared by several programs is in
the folder above them. A program runs as if its text followed ``python -c``: its
`__main__` has no file, so nothing that spawns processes can import it again. To run one
by hand, add tests to PYTHONPATH: ``python tests/programs/x/y/z.py``.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import gristmill

DEADLINE_S = 60
PROGRAMS = Path(__file__).parents[1] / "programs"
# Compiled with the file's name, for editors, debuggers and tracebacks.
EXECUTE = """
import pathlib
exec(compile(pathlib.Path({path!r}).read_text(), {path!r}, "exec"))
"""
DUMP_STACKS = """
import faulthandler
faulthandler.dump_traceback_later({deadline_s} - 5, exit=True)
"""


def environment() -> dict[str, str]:
    """Return this process's environment, with a path to the helpers and gristmill."""
    places = [str(Path(__file__).parents[1]), str(Path(gristmill.__file__).parents[1])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def command(
    program: str,
    *arguments: object,
    options: Iterable[str] = (),
    deadline_s: int | None = None,
) -> list[str]:
    """Return the command that runs a program.

    Args:
        program: Its path below tests/programs, without ``.py``.
        arguments: ``sys.argv[1:]`` of the program.
        options: Options of the interpreter.
        deadline_s: 5 s earlier, the process prints the stacks of its threads and
            ends.
    """
    text = EXECUTE.format(path=str(PROGRAMS / f"{program}.py"))
    if deadline_s is not None:
        text = DUMP_STACKS.format(deadline_s=deadline_s) + text
    return [sys.executable, *options, "-c", text, *map(str, arguments)]


def run(
    program: str,
    *arguments: object,
    deadline_s: int = DEADLINE_S,
    within: tuple[str, ...] = (),
) -> str:
    """Run a program to its end and return what it printed.

    Args:
        program: Its path below tests/programs, without ``.py``.
        arguments: ``sys.argv[1:]`` of the program.
        deadline_s: A program that takes longer is killed, and the test fails with
            the stacks of its threads.
        within: A command that runs the command appended to it.
    """
    began = [*within, *command(program, *arguments, deadline_s=deadline_s)]
    with _begin(began, subprocess.DEVNULL) as process:
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"not done in {deadline_s} s:\n{out}\n{err}") from None
    check_end(process.returncode, out, err)
    return out


def check_end(status: int, out: str, err: str) -> None:
    """Fail if a program failed or ignored an exception."""
    assert status == 0, f"{status}:\n{out}\n{err}"
    assert "Exception ignored" not in err, err


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program in its own process group, with open pipes."""
    began = command(program, *arguments, deadline_s=DEADLINE_S)
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
    """Return a command that runs the command after it with a private /dev/shm."""
    mount = f'mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$@"'
    return ("unshare", "-m", "sh", "-c", mount, "sh")


def can_mount() -> bool:
    """Return whether this user may create a mount namespace."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    return subprocess.run([unshare, "-m", "true"], capture_output=True).returncode == 0
