"""Waits for the ends of the pools."""

import pytest

from support import ranks


@pytest.fixture(scope="session", autouse=True)
def _no_process_is_left():
    yield
    ranks.wait_for_ends()
