"""Modules that the launcher imports once for all workers of tests, see conftest.py.

Test modules import these, so each pool would import them otherwise.
"""

import hypothesis.strategies  # noqa: F401
import pytest  # noqa: F401

import gristmill._engine.worker  # noqa: F401
