"""Runs test programs in forks of an interpreter that has already imported torch.

Importing torch takes longer than running such a program. Programs run as described in
`scripts`, except that torch is already imported and that their parent is that
interpreter.
"""

import atexit
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

from faults.scripts import DEADLINE_S, PROGRAMS, check_end, environment

MOST_BYTES = 1 << 16
# The program runs after the loop, at the top level of `__main__`, whose other
# names are deleted. So it ends like any program.
SERVE = """
import faulthandler, json, os, pathlib, socket, sys
import torch

requests = socket.socket(fileno=int(sys.argv[1]))
while True:
    request, pipes, _, _ = socket.recv_fds(requests, {most_bytes}, 2)
    if not request:
        sys.exit()
    pid = os.fork()
    if pid == 0:
        break
    for pipe in pipes:
        os.close(pipe)
    requests.sendall(f"{{pid}}\\n".encode())
    status = os.waitpid(pid, 0)[1]
    requests.sendall(f"{{os.waitstatus_to_exitcode(status)}}\\n".encode())
requests.close()
os.setsid()
for number, pipe in enumerate(pipes, 1):
    os.dup2(pipe, number)
    os.close(pipe)
path, deadline_s, arguments, environment = json.loads(request)
os.environ.clear()
os.environ.update(environment)
sys.argv[1:] = arguments
faulthandler.dump_traceback_later(deadline_s - 5, exit=True)
program = compile(pathlib.Path(path).read_text(), path, "exec")
del arguments, deadline_s, environment, faulthandler, json, number, os, path, pathlib
del pid, pipe, pipes, request, requests, socket, sys, torch
exec(program)
"""


@functools.cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVE.format(most_bytes=MOST_BYTES),
                str(theirs.fileno()),
            ],
            stdin=subprocess.DEVNULL,
            env=environment(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours


def run(program: str, *arguments: object, deadline_s: int = DEADLINE_S) -> str:
    """Run a program to its end and return its output, like `scripts.run`."""
    path = str(PROGRAMS / f"{program}.py")
    request = [path, deadline_s, [*map(str, arguments)], environment()]
    text = json.dumps(request).encode()
    assert len(text) < MOST_BYTES
    pairs = [os.pipe() for _ in range(2)]
    socket.send_fds(_server(), [text], [pipe for _, pipe in pairs])
    for _, pipe in pairs:
        os.close(pipe)
    answers = _server().makefile()
    pid = int(answers.readline())
    (out, err), in_time = _read([pipe for pipe, _ in pairs], deadline_s)
    if not in_time:
        os.killpg(pid, signal.SIGKILL)
    status = int(answers.readline())
    assert in_time, f"not done in {deadline_s} s:\n{out}\n{err}"
    check_end(status, out, err)
    return out


def _read(pipes: list[int], within_s: float) -> tuple[list[str], bool]:
    """Read pipes until all are closed; also return whether that happened in time."""
    end = time.monotonic() + within_s
    found = dict.fromkeys(pipes, b"")
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(end - time.monotonic()):
                if data := os.read(key.fd, MOST_BYTES):
                    found[key.fd] += data
                else:
                    selector.unregister(key.fd)
        in_time = not selector.get_map()
    for pipe in pipes:
        os.close(pipe)
    return [data.decode() for data in found.values()], in_time
