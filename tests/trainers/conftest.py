"""Fixtures for tests with real trainers."""

import pytest


@pytest.fixture
def watch(monkeypatch):
    from trainers.watching import Watch

    return Watch(monkeypatch)


@pytest.fixture
def uninstalled():
    """Call uninstall() after the test."""
    from gristmill.torch import uninstall

    yield
    uninstall()


@pytest.fixture(autouse=True)
def impatient_torch(monkeypatch):
    """Shorten the time after which torch kills a worker that does not exit.

    Forked workers that inherited pipes of others do not exit when asked. torch's loader
    waits for five seconds before it kills one.
    """
    import torch.utils.data

    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)


@pytest.fixture(autouse=True)
def without_jax(monkeypatch):
    """Start workers as if no other test in this process had used JAX."""
    from gristmill._torch.workers import start_method

    monkeypatch.setattr(start_method, "_is_jax_initialized", lambda: False)
