"""Settings of the tests of torch's loader."""

import pytest

from gristmill._torch import loader


@pytest.fixture(autouse=True, scope="session")
def _warned_of_accelerate():
    """Other tests of the same process import accelerate, of which a loader warns once.

    Here warnings are compared.
    """
    loader._warned_of_accelerate = True
