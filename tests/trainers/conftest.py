"""Fixtures of the tests with real trainers."""

import pytest


@pytest.fixture
def watch(monkeypatch):
    from trainers.watching import Watch

    return Watch(monkeypatch)


@pytest.fixture
def uninstalled():
    """Ends what a test has installed."""
    from gristmill.torch import uninstall

    yield
    uninstall()


@pytest.fixture(autouse=True)
def impatient_torch(monkeypatch):
    """Torch's forked workers that know others' pipes do not end when they are told.

    Its loader then waits for five seconds before it kills one.
    """
    import torch.utils.data

    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)


@pytest.fixture(autouse=True)
def without_jax(monkeypatch):
    """Workers start as where no other test of this process has used JAX."""
    from gristmill._torch.workers import start_method

    monkeypatch.setattr(start_method, "_has_jax_begun", lambda: False)
