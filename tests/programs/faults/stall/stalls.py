"""Helpers of the programs about stalled workers."""

import logging
import os
import signal
import threading


class Warnings(logging.Handler):
    """Collects Gristmill's warnings that contain a text.

    Other warnings are ignored: a busy machine may delay the consumer by a second.
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
