"""Ways in which a process ends itself."""

import os
import signal


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def exit_0():
    os._exit(0)


def exit_3():
    os._exit(3)


DEATHS = {"SIGKILL": kill, "SIGSEGV": segfault, "exit-0": exit_0, "exit-3": exit_3}
