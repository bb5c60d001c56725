"""What the programs about workers that stall share."""

import logging
import os
import signal
import threading


class Warnings(logging.Handler):
    """Collects those of Gristmill's warnings in which a text is.

    On a busy machine others may keep the consumer waiting for a second, too.
    """

    def __init__(self, about="record 42"):
        super().__init__()
        self.about = about
        self.texts = []
        self.came = threading.Event()
        logging.getLogger("gristmill").addHandler(self)

    def emit(self, record):
        text = record.getMessage()
        if self.about in text:
            self.texts.append(text)
            self.came.set()


def loop_for_ever():
    while True:
        pass


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
