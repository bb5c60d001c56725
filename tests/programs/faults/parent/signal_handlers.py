import signal

from faults.toolbox import Add, loader


def all_handlers():
    return {n: signal.getsignal(n) for n in signal.valid_signals()}


def dispositions():
    with open("/proc/self/status") as file:
        return [
            line
            for line in file
            if line.startswith("Sig") and not line.startswith("SigQ")
        ]


signal.signal(signal.SIGUSR1, lambda *_: None)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
before = all_handlers(), dispositions()
iterator = iter(loader([Add()]))
next(iterator)
assert (all_handlers(), dispositions()) == before
list(iterator)
iterator.close()
assert (all_handlers(), dispositions()) == before
