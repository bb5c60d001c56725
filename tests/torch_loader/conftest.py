"""Settings of the tests of torch's loader."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _warned_of_accelerate():
    """Other tests of the same process import accelerate, of which a loader warns once.

    Here warnings are compared.
    """
    from gristmill._torch import loader

    loader._warned_of_accelerate = True


@pytest.fixture(autouse=True, scope="session")
def _jax_has_not_begun():
    """Other tests of the same process use JAX, and loaders would use the launcher.

    Tests of that have processes of their own.
    """
    from gristmill._torch.workers import start_method

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start_method, "_has_jax_begun", lambda: False)
        yield
