"""Fixtures of the tests with real trainers."""

import pytest
import torch.utils.data

from gristmill.torch import uninstall
from trainers.watching import Watch


@pytest.fixture
def watch(monkeypatch):
    return Watch(monkeypatch)


@pytest.fixture
def uninstalled():
    """Ends what a test has installed."""
    yield
    uninstall()


@pytest.fixture(autouse=True)
def impatient_torch(monkeypatch):
    """Torch's forked workers that know others' pipes do not end when they are told.

    Its loader then waits for five seconds before it kills one.
    """
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
