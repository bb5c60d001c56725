"""Settings for the tests of torch's loader."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _warned_of_accelerate():
    """Suppress the warning about accelerate, which loaders give once per process.

    Other tests in this process may import accelerate, and tests here compare warnings.
    """
    from gristmill._torch import loader

    loader._warned_of_accelerate = True


@pytest.fixture(autouse=True, scope="session")
def _jax_is_not_initialized():
    """Start workers as if no test in this process had used JAX.

    Loaders would use the launcher otherwise. Tests of that run in subprocesses.
    """
    from gristmill._torch.workers import start_method

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start_method, "_is_jax_initialized", lambda: False)
        yield
