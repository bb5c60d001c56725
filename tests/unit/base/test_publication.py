"""Facts that cannot be published do not disturb the program."""

import os

from gristmill._base import publication


class Iterator:
    pass


def test_system_without_free_descriptors_publishes_nothing(monkeypatch):
    def fail(name):
        raise OSError("Too many open files")

    monkeypatch.setattr(publication, "_publications", [])
    monkeypatch.setattr(os, "memfd_create", fail)
    publication.publish("counts", Iterator(), {"elements": 1})
    monkeypatch.undo()
    iterator = Iterator()
    publication.publish("counts", iterator, {"elements": 2})
    assert {"elements": 2} in publication.read_facts(os.getpid(), "counts")
